"""What a reflecting optimizer (GEPA) is told of an answer: text that an LM reads, hence here."""


def feedback_on(intent: str, agent: str, *, right_intent: str, right_agent: str, right: bool) -> str:
    """Return one sentence on what was chosen and what should have been."""
    wanted = f"intent {right_intent}, agent {right_agent}"
    return f"Right: {wanted}." if right else f"Wrong: it chose intent {intent}, agent {agent}. It should have been {wanted}."
