"""What a replay found, as plain data for terminal, page and programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from optimizers.evaluate import Figure
from service.contracts.model import JsonObject

EXAMPLES = 3  # texts of a cluster
WORDS = {"ask_lm": "ask the LM", "clarify": "ask the user", "refuse": "refuse"}


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """What is done with a request: `dispatch` to an agent, `ask_lm`, `clarify` or `refuse`."""

    action: str
    agent: str | None = None

    def __str__(self) -> str:
        return WORDS[self.action] if self.agent is None else self.agent


@dataclass(frozen=True, slots=True)
class Cluster:
    """Flips with the same choices before and after, of texts that mean much the same.

    Attributes:
        source: the old version's choice.
        target: the new version's.
        mixed: the texts are what no group of meaning was found for.
        requests: requests that flip; `texts` of them are different.
        examples: the most typical texts, without personal data.
        gains: requests whose old choice is known to be wrong, and the new one is not.
        losses: the other way round.
        even: both are known to be right or wrong alike.
        said: requests of which somebody said who is right; the rest of what is known is read off outcomes.
        fitted_on: requests whose text the new version was fitted on.
        mended: errors that are likely to end.
        broken: errors that are likely to begin.
        expected_errors: by the probabilities of the old and of the new version, each with the old choice and with the new one.
        latency_ms: mean observed latency of the old choice's agent and of the new one's, None where there is none.
        timeout_ms: the agents' timeouts, None where no agent is asked.
    """

    source: Choice
    target: Choice
    mixed: bool
    requests: int
    texts: int
    examples: tuple[str, ...]
    gains: int
    losses: int
    even: int
    said: int
    fitted_on: int
    mended: float
    broken: float
    expected_errors: tuple[tuple[float, float], tuple[float, float]]
    latency_ms: tuple[float | None, float | None]
    timeout_ms: tuple[int | None, int | None]

    @property
    def unknown(self) -> int:
        """Requests of which it is not known which choice is right."""
        return self.requests - self.gains - self.losses - self.even

    @property
    def lm_requests(self) -> int:
        """How many more requests are put to an LM."""
        return self._more("ask_lm")

    @property
    def questions(self) -> int:
        """How many more questions are put to the user."""
        return self._more("clarify")

    def _more(self, action: str) -> int:
        return self.requests * ((self.target.action == action) - (self.source.action == action))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a version's choices cost.

    Attributes:
        dispatched: requests sent to an agent.
        latency_ms: mean of what its agent took by the log, over the `latency_told` of them whose agent worked in it.
        timeout_ms: mean timeout of their agents.
    """

    dispatched: int
    latency_ms: float | None
    latency_told: int
    timeout_ms: float | None


@dataclass(frozen=True, slots=True)
class Logged:
    """Requests that one version decided then, by one rung: how often each replayed version does the same, and how often it asks an LM."""

    version: str
    rung: str
    requests: int
    same_as_old: int
    same_as_new: int
    old_asks_lm: int
    new_asks_lm: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The log's requests through two versions.

    Attributes:
        old, new: the versions' numbers.
        requests: that were replayed, the latest of `found`; `texts` of them are different.
        left_out: requests that no text decides by itself, by reason.
        flips: share of requests whose decision differs; of those `another_agent` go to another agent, the others to another action.
        gains, losses, mended, broken: as in `Cluster`, of all flips.
        fresh_gains, fresh_losses: those on texts that the new version was not fitted on.
        fitted_on: share of requests whose text it was fitted on.
        asked_lm: share of requests put to an LM by the old version and by the new one.
        asked_user: the same of those that are answered with a question to the user.
        costs: of the old version and of the new one.
        logged: what was decided then, by who decided.
        clusters: the flips, those that are likely to break most first.
    """

    old: str
    new: str
    requests: int
    found: int
    texts: int
    left_out: Mapping[str, int]
    flips: Figure
    another_agent: int
    gains: int
    losses: int
    fresh_gains: int
    fresh_losses: int
    fitted_on: Figure
    mended: float
    broken: float
    asked_lm: tuple[Figure, Figure]
    asked_user: tuple[Figure, Figure]
    costs: tuple[Cost, Cost]
    logged: tuple[Logged, ...]
    clusters: tuple[Cluster, ...]

    @property
    def flipped(self) -> int:
        """How many requests flip."""
        return sum(cluster.requests for cluster in self.clusters)

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        derived = ("unknown", "lm_requests", "questions")
        clusters = [asdict(one) | {name: getattr(one, name) for name in derived} for one in self.clusters]
        return asdict(self) | {"flipped": self.flipped, "clusters": clusters}
