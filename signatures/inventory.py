"""Every LM call of Pointsman: what it may cost and what happens without it. Nothing asks an LM that is not listed here.

Imports no DSPy; `signature` names the class, a router version files its optimized state as `programs/NAME.json`.
"""

from dataclasses import dataclass
from enum import StrEnum


class ModelClass(StrEnum):
    """Which of the configured models answers: `light` is fast, `strong` is for texts that people read."""

    LIGHT = "light"
    PRIMARY = "primary"
    STRONG = "strong"


@dataclass(frozen=True, slots=True)
class LMCall:
    """One kind of LM call. `deadline` is in seconds, the most it gets when the request has time to spare."""

    name: str
    signature: str
    model_class: ModelClass
    temperature: float
    max_tokens: int
    deadline: float
    fallback: str


INVENTORY: dict[str, LMCall] = {
    call.name: call
    for call in (
        LMCall(
            name="intent",
            signature="signatures.intent.IntentClassification",
            model_class=ModelClass.LIGHT,
            temperature=0.0,
            max_tokens=96,
            deadline=1.2,
            fallback="The student's intent, or the safe default.",
        ),
        LMCall(
            name="routing",
            signature="signatures.routing.AgentRouting",
            model_class=ModelClass.PRIMARY,
            temperature=0.0,
            max_tokens=160,
            deadline=1.2,
            fallback="The agent that serves the intent which the first call found.",
        ),
        LMCall(
            name="synthesis",
            signature="signatures.response.ResponseSynthesis",
            model_class=ModelClass.STRONG,
            temperature=0.0,
            max_tokens=700,
            deadline=20.0,
            fallback="The findings, joined by template.",
        ),
    )
}
