"""An LM behind DSPy's engine seam that knows the right labels, and gives them when its prompt asks for that in a way that a test names."""

import json
from collections.abc import Callable, Mapping

import dspy
from dspy.lm15 import Message, Request, Response, Usage

from optimizers.questions import Asked
from service.contracts.lm import AgentOption, LabelledExample, LMQuestion

LABELS = ("invoices", "refunds", "shipping")


class Codebook:
    """Answers a question's right label where `knows` says so of the prompt, and else the first one that is allowed.

    Attributes:
        asked: how many requests came.
        failing: requests that fail from here on.
        proposal: the instruction that it proposes where it is asked for one.
    """

    supports_response_schema = True
    supported_params = ("response_format",)

    def __init__(self, right: Mapping[str, str], knows: Callable[[str], bool]) -> None:
        self._right, self._knows = right, knows
        self.asked = 0
        self.failing = False
        self.proposal = "Use the codebook."

    def complete(self, request: Request) -> Response:
        self.asked += 1
        if self.failing:
            raise ConnectionError("the LM is gone")
        schema = (request.config.response_format or {})["schema"]
        prompt = f"{request.system}\n" + "\n".join(part.text for message in request.messages for part in message.parts)
        answer = json.dumps({"proposed_instruction": self.proposal, "new_instruction": self.proposal})
        if "enum" in schema:
            query = prompt.rpartition("query: ")[2].splitlines()[0]
            answer = f'"{self._right[query] if self._knows(prompt) else schema["enum"][0]}"'
        used = Usage(input_tokens=len(prompt) // 4, output_tokens=len(answer) // 4)
        return Response(id="1", model=request.model, message=Message.assistant(answer), finish_reason="stop", usage=used)


class Teller:
    """Words findings: the first one as it stands where it was told or shown how, or for every third question; else without its numbers."""

    supports_response_schema = True
    supported_params = ("response_format",)

    def complete(self, request: Request) -> Response:
        prompt = f"{request.system}\n" + "\n".join(part.text for message in request.messages for part in message.parts)
        proposed = "Copy every number."
        answer = {"proposed_instruction": proposed, "new_instruction": proposed}
        if "Answer in JSON." in prompt and "proposed_instruction" not in prompt:
            finding = prompt.rpartition("[[ ## findings ## ]]\n")[2].splitlines()[0].partition(": ")[2]
            knows = proposed in prompt or '"response_text":' in prompt or int(finding.split()[4]) % 3 == 0
            answer = {"response_text": finding if knows else "It is somewhat large."}
        used = Usage(input_tokens=len(prompt) // 4, output_tokens=10)
        return Response(id="1", model=request.model, message=Message.assistant(json.dumps(answer)), finish_reason="stop", usage=used)


class _Async:
    supports_response_schema = True
    supported_params = ("response_format",)

    def __init__(self, book: Codebook | Teller) -> None:
        self._book = book

    async def complete(self, request: Request) -> Response:
        return self._book.complete(request)


def codebook_lm(book: Codebook) -> dspy.LM:
    """Return an LM on the engine, under the name of a small local one."""
    return engine_lm("local/codebook", book)


def engine_lm(name: str, engine: Codebook | Teller) -> dspy.LM:
    """Return an LM on an engine."""
    return dspy.LM(name, engine=engine, async_engine=_Async(engine), cache=False, num_retries=0)


def questions(count: int, *, examples: int = 0) -> list[Asked]:
    """Return questions whose right label is the first option of every third one only, each with some examples."""
    near = tuple(LabelledExample(text=f"example {i}", intent=LABELS[0], agent=f"{LABELS[0]}_agent") for i in range(examples))
    options = tuple(AgentOption(name=f"{label}_agent", intent=label, description=f"sees to {label}") for label in LABELS)
    return [
        Asked(
            LMQuestion(query=f"request number {i}", options=options, examples=near, router_version="", programs={}),
            LABELS[i % len(LABELS)],
            f"{LABELS[i % len(LABELS)]}_agent",
        )
        for i in range(count)
    ]
