"""An LM that answers from a script through DSPy's own engine seam, and keeps what it was asked."""

import asyncio
from collections.abc import Sequence

import dspy
from dspy.lm15 import Message, Request, Response, Usage


class ScriptedEngine:
    """Implements DSPy's engine protocol; an answer that is an exception is raised, a number delays the next answer by as many seconds."""

    supports_response_schema = False
    supported_params: Sequence[str] = ()

    def __init__(self, *answers: str | Exception | float) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        while isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Response(id="1", model=request.model, message=Message.assistant(answer), finish_reason="stop", usage=Usage())


class _Unused:
    """The synchronous half of an engine; the product calls asynchronously only, so a call here is a failure of the test."""

    def complete(self, request: Request) -> Response:
        raise AssertionError("The LM was called synchronously.")


def scripted_lm(*answers: str | Exception | float) -> tuple[dspy.LM, ScriptedEngine]:
    """Return an LM with the engine behind it."""
    engine = ScriptedEngine(*answers)
    return dspy.LM("scripted/model", engine=_Unused(), async_engine=engine, cache=False, num_retries=0), engine
