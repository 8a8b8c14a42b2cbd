"""An LM that asks nobody: it answers with the first thing that a question's schema allows. A search on it shows what the real one costs.

The first label is the student's likeliest, so demonstrations are found about as often as a real LM finds them. Every second text
about findings repeats what they say.
"""

import json
from typing import Any
from zlib import crc32

import dspy
from dspy.lm15 import Message, Request, Response, Usage

CHARACTERS_PER_TOKEN = 4  # English, whatever the tokenizer
WORDED = "response_text"
WRITTEN = "Choose what fits the query best. " * 8  # as long as a proposed instruction


class _Simulated:
    """DSPy's engine protocol."""

    supports_response_schema = True
    supported_params = ("response_format",)

    def complete(self, request: Request) -> Response:
        schema = (request.config.response_format or {}).get("schema", {})
        prompt = "\n".join(part.text for m in request.messages for part in m.parts if hasattr(part, "text"))
        found = _first(schema)
        if isinstance(found, dict) and WORDED in found and crc32(prompt.encode()) % 2:
            found[WORDED] = _findings(prompt)
        answer = json.dumps(found)
        read = len(str(request.system or "")) + len(prompt)
        usage = Usage(input_tokens=read // CHARACTERS_PER_TOKEN, output_tokens=max(1, len(answer) // CHARACTERS_PER_TOKEN))
        return Response(id="simulated", model=request.model, message=Message.assistant(answer), finish_reason="stop", usage=usage)


class _AsyncSimulated(_Simulated):
    async def complete(self, request: Request) -> Response:
        return super().complete(request)


def simulated_lm(model: str) -> dspy.LM:
    """Return an LM that costs nothing, under the name of the one it stands for."""
    return dspy.LM(model, engine=_Simulated(), async_engine=_AsyncSimulated(), cache=False, num_retries=0)


def _findings(prompt: str) -> str:
    """Return what the findings of a question say, without evidence and caveats."""
    block = prompt.rpartition("[[ ## findings ## ]]\n")[2].partition("Answer in JSON")[0]
    return " ".join(line.partition(": ")[2] for line in block.splitlines() if line and not line.startswith("- "))


def _first(schema: dict[str, Any]) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: _first(one) for name, one in schema.get("properties", {}).items()}
        case "array":
            return []
        case "number" | "integer":
            return 0.5
        case _:
            return WRITTEN
