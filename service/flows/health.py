"""What the service knows of each agent's health: its breaker, who may still call it, how fast it answers, and which address to take."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

from service.catalog.model import Agent
from service.errors import ErrorCode
from service.flows.allowance import Allowance
from service.flows.breaker import Breaker, BreakerState
from service.flows.slots import Slots
from service.ports import AgentFailure

log = logging.getLogger(__name__)
RETRY_SHARE, RETRIES_SAVED, RETRIES_PER_SECOND = 0.2, 10.0, 1.0
HEDGE_SHARE, HEDGES_SAVED = 0.05, 5.0
HEDGE_QUANTILE, HEDGE_LEAST = 0.95, 20  # answers that must have been seen before a quantile means something
REMEMBERED = 100  # answers
LATELY = 30.0  # seconds, or three times the quickest answer: longer ago says nothing of how fast an agent is now
AT_ONCE = 0.1  # seconds
REPLICA_REST = 5.0  # seconds that an address is passed over after a failure
LONGEST_RETRY_AFTER = 60.0  # seconds; who asks for more is tried again then
WAITING_PER_SLOT = 2  # how many may wait for each that is at work


class AgentHealth:
    """One agent's. Times are seconds by `clock`."""

    def __init__(self, agent: Agent, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = agent.name
        self._clock = clock
        self._urls = tuple(str(url) for url in agent.urls)
        self._next_url = 0
        self._resting: dict[str, float] = {}
        self._answered: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)  # how long each answer took, and when it came
        self._left_alone_until = 0.0
        self.breaker = Breaker(clock=clock)
        self.retries = Allowance(share=RETRY_SHARE, most=RETRIES_SAVED, start=RETRIES_SAVED, per_second=RETRIES_PER_SECOND, clock=clock)
        self.hedges = Allowance(share=HEDGE_SHARE, most=HEDGES_SAVED, start=0.0, clock=clock)
        waiting = WAITING_PER_SLOT * agent.max_concurrent
        self.slots = Slots(agent.max_concurrent, most_waiting=waiting, name=agent.name)
        # Of those who wait until it may be called again: as many as were at work or had a place.
        self.resting = Slots(waiting + agent.max_concurrent, most_waiting=0, name=agent.name)

    @property
    def fastest(self) -> float:
        """The least seconds in which it has answered lately; 0 when nothing is known: who has less time than that is not sent to it."""
        quickest, _ = min(self._answered, default=(0.0, 0.0))
        since = self._clock() - max(LATELY, 3.0 * quickest)
        return min((seconds for seconds, at in self._answered if at >= since), default=0.0)

    @property
    def left_alone_for(self) -> float:
        """Seconds for which it has asked not to be called (`Retry-After`)."""
        return max(0.0, self._left_alone_until - self._clock())

    @property
    def hedge_after(self) -> float | None:
        """Seconds after which a second call is worth its load: the 95th percentile of the answers; None when too few are known."""
        if len(self._urls) < 2 or len(self._answered) < HEDGE_LEAST:
            return None
        return sorted(self._answered)[int(HEDGE_QUANTILE * (len(self._answered) - 1))][0]

    def choose_url(self, *, other_than: str | None = None) -> str:
        """Return the next address in turn that has not just failed; if all have, the one that has rested longest."""
        self._next_url += 1
        turn = self._next_url % len(self._urls)
        urls = [url for url in self._urls[turn:] + self._urls[:turn] if url != other_than]
        now = self._clock()
        return min(urls, key=lambda url: max(0.0, self._resting.get(url, 0.0) - now))

    def answered(self, seconds: float) -> None:
        """Take note of an answer that can be used."""
        self._answered.append((seconds, self._clock()))
        self._note(lambda: self.breaker.succeeded(began=self._clock() - seconds))

    def failed(self, url: str, failure: AgentFailure, waited: float) -> None:
        """Take note of a failure: some speak of the agent's health, others of the request."""
        began, counted = self._clock() - waited, self.left_alone_for > 0.0
        if failure.retry_after is not None:
            self._left_alone_until = max(self._left_alone_until, self._clock() + min(failure.retry_after, LONGEST_RETRY_AFTER))
        if failure.code is ErrorCode.AGENT_ERROR and not failure.recoverable:
            self._note(lambda: self.breaker.succeeded(began=began))  # it refused in good order
            return
        if failure.retry_after is not None and counted:
            return  # several were told at once to wait: that is one failure, and all of them come again
        self._resting[url] = self._clock() + REPLICA_REST
        silent_for = waited if failure.code is ErrorCode.AGENT_TIMEOUT else None
        nobody = not failure.may_have_run or failure.status == HTTPStatus.SERVICE_UNAVAILABLE  # as a proxy says it
        absent = failure.unavailable and nobody and waited < AT_ONCE
        self._note(lambda: self.breaker.failed(silent_for=silent_for, absent=absent, began=began))

    def _note(self, change: Callable[[], None]) -> None:
        """Change the breaker, and log when it opens or closes."""
        before = self.breaker.state is BreakerState.CLOSED
        change()
        after = self.breaker.state is BreakerState.CLOSED
        if before is not after:
            log.warning("breaker_closed" if after else "breaker_opened", extra={"agent": self._name})


class Health:
    """All agents', and the slots that they share."""

    def __init__(self, *, slots: Slots, clock: Callable[[], float] = time.monotonic) -> None:
        self.slots = slots
        self._clock = clock
        self._agents: dict[str, AgentHealth] = {}

    def of(self, agent: Agent) -> AgentHealth:
        """Return what is known of an agent."""
        known = self._agents.get(agent.name)
        if known is None:
            known = self._agents[agent.name] = AgentHealth(agent, clock=self._clock)
        return known

    def available(self, agent: Agent, seconds: float) -> bool:
        """Say whether a request that would wait `seconds` may go to the agent now."""
        known = self._agents.get(agent.name)
        return known is None or known.breaker.allows(min(seconds, agent.timeout_ms / 1_000))

    def left_alone(self, agent: Agent) -> bool:
        """Say whether the agent has asked not to be called now (`Retry-After`)."""
        known = self._agents.get(agent.name)
        return known is not None and known.left_alone_for > 0.0

    def states(self, agents: Iterable[Agent]) -> Iterator[tuple[str, BreakerState]]:
        """Return the state of each agent's breaker, by name."""
        return ((agent.name, self.state(agent)) for agent in agents)

    def state(self, agent: Agent) -> BreakerState:
        """Return the state of the agent's breaker."""
        known = self._agents.get(agent.name)
        return BreakerState.CLOSED if known is None else known.breaker.state
