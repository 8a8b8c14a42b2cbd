"""What a reflecting optimizer (GEPA) is told of an answer: text that an LM reads, hence here."""

FLAWS = {
    "no usable text": "The answer is empty or far too long.",
    "a number of its own": "The answer gives a number that no finding gives. Every number must be a finding's, as it stands there.",
    "a finding left out": "The answer leaves out what a finding states. Name every number of each finding's first sentence.",
}


def feedback_on(intent: str, agent: str, *, right_intent: str, right_agent: str, right: bool) -> str:
    """Return one sentence on what was chosen and what should have been."""
    wanted = f"intent {right_intent}, agent {right_agent}"
    return f"Right: {wanted}." if right else f"Wrong: it chose intent {intent}, agent {agent}. It should have been {wanted}."


def feedback_on_text(flaw: str) -> str:
    """Return what is wrong with a text that words findings; `flaw` as in `FLAWS`, or anything else for none."""
    return FLAWS.get(flaw, "Right: every number is a finding's, and no finding is left out.")
