"""The report of a request under way: what the caller is told while it runs, and what is known of it should the caller leave."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from service.contracts.notice import Notice
from service.contracts.progress import AgentEnd, AgentStart, PartialResult, ProgressEvent
from service.errors import ErrorCode
from service.flows.flow import Outcome, PartRun, Verdict
from service.flows.work import AgentRun, AgentStarted
from service.ports import AgentFailure
from service.stages.plain_text import harmless, harmless_result
from service.stages.synthesis import describe_run, finding_of, word

LEFT = "The caller left before the answer, or the service ended, so the work was cancelled."


def unheard(_: ProgressEvent) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Report:
    """Collects while the agents work; one request's own, never shared."""

    tell: Callable[[ProgressEvent], None] = unheard
    started: list[AgentStarted] = field(default_factory=list)
    ended: list[AgentRun] = field(default_factory=list)

    def __call__(self, event: AgentStarted | AgentRun) -> None:
        """Take note, and tell the caller."""
        if isinstance(event, AgentStarted):
            self.started.append(event)
            if self.tell is not unheard:
                self.tell(AgentStart(agent_id=event.agent.name, agent_tier=event.agent.tier))
            return
        self.ended.append(event)
        if self.tell is not unheard:
            self.tell(AgentEnd(result=harmless_result(describe_run(event))))
            self._tell_so_far()

    def cut_off(self, verdict: Verdict) -> Outcome:
        """Return what had come of the plan when the caller left; who was still at work counts as cancelled."""
        runs = {event.agent.name: _cancelled(event) for event in self.started}
        runs |= {run.agent.name: run for run in self.ended}
        parts = [PartRun(part, tuple(runs[a.name] for a in part.chain if a.name in runs)) for part in verdict.parts]
        return Outcome(tuple(p for p in parts if p.runs), warnings=(Notice(code=ErrorCode.CANCELLED, message=LEFT),))

    def _tell_so_far(self) -> None:
        answered = [run for run in self.ended if run.handoff is not None]
        if answered and self.ended[-1].handoff is not None:
            texts = [word(finding_of(run.handoff.agent_id, run.handoff.result)) for run in answered if run.handoff is not None]
            self.tell(PartialResult(response_text=harmless("\n\n".join(texts)), agents_answered=tuple(run.agent.name for run in answered)))


def _cancelled(event: AgentStarted) -> AgentRun:
    attempts, spent = event.attempts(), int((time.monotonic() - event.at) * 1_000)
    failure = AgentFailure(ErrorCode.CANCELLED, LEFT, recoverable=False, unavailable=True, latency_ms=spent, may_have_run=attempts > 0)
    return AgentRun(event.agent, None, failure, attempts, spent)
