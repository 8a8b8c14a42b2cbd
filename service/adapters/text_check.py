"""What an LM's wording of findings has to keep to before anybody reads it."""

from collections.abc import Sequence

from service.adapters.lm_failures import FailureReason, failure
from service.adapters.number_check import foreign_numbers
from service.contracts.lm import Finding, LMFailure

RESPONSE_CHARACTERS = 4_000


def checked_text(text: str, findings: Sequence[Finding]) -> str | LMFailure:
    """Return the text, or why it may not be shown."""
    try:
        text = text.strip().encode("utf-16", "surrogatepass").decode("utf-16")  # which joins pairs that were written as escapes
    except UnicodeDecodeError:  # half of a pair, where the LM was cut off: it could be neither sent nor stored
        return failure(FailureReason.INVALID_OUTPUT, "The language model's text is no Unicode.")
    if not text or len(text) > RESPONSE_CHARACTERS:
        return failure(FailureReason.INVALID_OUTPUT, f"The language model's text has {len(text)} characters.")
    sources = [part for f in findings for part in (f.agent_id, f.summary, *f.evidence, *f.caveats)]
    foreign = foreign_numbers(text, sources)
    if foreign:
        return failure(FailureReason.INVALID_OUTPUT, f"The language model's text holds {len(foreign)} numbers that no finding holds.")
    return text
