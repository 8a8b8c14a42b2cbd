"""The flow `single`: the primary agent; where it fails, the fallbacks in order; the template answer at the end of the chain."""

from collections.abc import Sequence
from dataclasses import replace

from service.catalog.model import Agent
from service.contracts.notice import Notice
from service.flows.agent_call import AgentRun, CallAgent, Work
from service.flows.flow import TEMPLATE_ANSWER, Outcome, Verdict

RESERVE = 0.3


class Single:
    """Walk the chain until an agent answers."""

    def __init__(self, *, call: CallAgent) -> None:
        self._call = call

    async def __call__(self, verdict: Verdict, work: Work) -> Outcome:
        """Try each agent of the chain once (with its retries)."""
        runs: list[AgentRun] = []
        warnings = [Notice(code=s.code, message=_sentence(s.reason)) for s in verdict.skipped]
        for place, agent in enumerate(verdict.chain):
            if runs and work.deadline.left <= 0.0:
                break
            runs.append(await self._call(agent, leave_time(work, verdict.chain[place + 1 :])))
            if runs[-1].handoff is not None:
                break
        warnings += [Notice(code=run.failure.code, message=_sentence(run.failure.detail)) for run in runs if run.failure is not None]
        answered = bool(runs) and runs[-1].handoff is not None
        if answered and verdict.primary is not None and runs[-1].agent.name != verdict.primary.name:
            warnings.append(Notice(code="fallback_used", message=f"{runs[-1].agent.name} answers in place of {verdict.primary.name}."))
        template = not answered and verdict.ends_in_template
        if template:
            warnings.append(Notice(code=TEMPLATE_ANSWER, message="No agent of the chain could answer; a fixed text stands in."))
        return Outcome(tuple(runs), template, tuple(warnings))


def leave_time(work: Work, later: Sequence[Agent]) -> Work:
    """Return the work with an earlier deadline, so that the agents that come later have time: at most `RESERVE` of what is left."""
    needed = sum(agent.timeout_ms for agent in later) / 1_000
    return replace(work, deadline=work.deadline.within(work.deadline.left - min(needed, work.deadline.left * RESERVE)))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
