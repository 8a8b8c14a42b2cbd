"""Something was repaired, assumed or left out; the answer stands."""

from service.contracts.model import Contract


class Notice(Contract):
    """One warning of an answer. `field` is a JSON path of the input, where there is one."""

    code: str
    message: str
    field: str | None = None
