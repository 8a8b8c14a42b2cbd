"""Something was repaired, assumed or left out; the answer stands."""

from service.contracts.model import Contract

INTENT_FROM_HISTORY = "intent_from_history"
LANGUAGE_NOT_READ = "language_not_read"  # the question is in a language that the router does not read


class Notice(Contract):
    """One warning of an answer. `field` is a JSON path of the input, where there is one."""

    code: str
    message: str
    field: str | None = None
