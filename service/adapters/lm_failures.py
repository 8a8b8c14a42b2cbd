"""What can go wrong with an LM, as a closed set of reasons. Details name kinds and statuses, never what the LM or the user wrote."""

import re
from enum import StrEnum

from service.contracts.lm import LMFailure

_CONTENT = re.compile("content.?(filter|policy|management)|responsible.?ai", re.IGNORECASE)  # one prompt's fault, not the LM's


class FailureReason(StrEnum):
    """Why the LM gave nothing usable; a label of metrics."""

    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    INVALID_OUTPUT = "invalid_output"
    BREAKER_OPEN = "breaker_open"
    ERROR = "error"


def failure(reason: FailureReason, detail: str) -> LMFailure:
    """Return the failure as the port speaks of it."""
    return LMFailure(reason=reason.value, detail=detail)


def classify(exc: Exception) -> LMFailure:
    """Return the failure that an exception of an LM call stands for. Imports DSPy, so it is called in the LM's thread."""
    from dspy.utils import exceptions as lm

    from signatures.program import UnusableAnswer

    status = getattr(exc, "status", None)
    kind = type(exc).__name__ + (f" with HTTP status {status}" if status is not None else "")
    if isinstance(exc, TimeoutError | lm.LMTimeoutError):
        return failure(FailureReason.TIMEOUT, "The language model did not answer in time.")
    if isinstance(exc, lm.AdapterParseError | UnusableAnswer | lm.LMStreamAssemblyError | lm.LMCollectionLimitError):
        return failure(FailureReason.INVALID_OUTPUT, f"The language model's answer cannot be used ({kind}).")
    if isinstance(exc, lm.LMInvalidRequestError) and _CONTENT.search(f"{getattr(exc, 'provider_code', '')} {exc}"):
        return failure(FailureReason.INVALID_OUTPUT, f"The language model's provider refuses what was said ({kind}).")
    if isinstance(exc, lm.LMInvalidRequestError | lm.LMConfigurationError):
        return failure(FailureReason.ERROR, f"The language model refuses the request ({kind}).")
    if isinstance(exc, lm.LMTransportError | lm.LMProviderError):
        return failure(FailureReason.UNAVAILABLE, f"The language model cannot be reached or is failing ({kind}).")
    return failure(FailureReason.ERROR, f"The call of the language model broke ({kind}).")
