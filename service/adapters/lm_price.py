"""What an LM's tokens cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.adapters.local_lm import PROVIDER, LMEndpoint


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per token."""

    input: float
    output: float

    def of(self, usage: Mapping[str, object]) -> float:
        """Return what a call cost, from the usage that the LM's server reported (OpenAI's names)."""
        read, written = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        return self.input * _count(read) + self.output * _count(written)


def price_of(endpoint: LMEndpoint) -> Price | None:
    """Return what an LM's tokens cost by LiteLLM's list: nothing on this machine, None where nobody knows."""
    if endpoint.model.partition("/")[0] == PROVIDER:
        return Price(0.0, 0.0)
    if endpoint.api_base is not None:
        return None  # somebody's own server: the list speaks of the provider's
    import litellm  # takes seconds

    try:
        listed = litellm.get_model_info(endpoint.model)
    except Exception:  # noqa: BLE001  # it raises a plain Exception for a model that it does not know
        return None
    read, written = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
    return None if read is None or written is None else Price(read, written)


def _count(tokens: object) -> int:
    return tokens if isinstance(tokens, int) else 0
