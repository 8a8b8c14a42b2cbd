"""A part's chain: the primary agent, and where it fails, its fallbacks in order. Shared by the flows."""

from collections.abc import Sequence
from dataclasses import replace

from service.catalog.model import Agent
from service.contracts.notice import Notice
from service.errors import ErrorCode
from service.flows.agent_call import EXTENDED, CallAgent
from service.flows.flow import TEMPLATE_ANSWER, Outcome, Part, PartRun, Role
from service.flows.work import AgentRun, Work

RESERVE = 0.3  # of the time that is left, at most, is kept for the agents that come later


async def walk(call: CallAgent, part: Part, work: Work, taken: set[str]) -> PartRun:
    """Try each agent of the chain once (with its retries) until one answers; `taken` are those that stand in for another part already.

    An agent that has no room is not passed over: its load would fall on the agents behind it ("Avoiding fallback in distributed
    systems", Amazon Builders' Library). One that has asked not to be called for a while is, where another could be asked.
    """
    runs: list[AgentRun] = []
    work = replace(work, intent=part.intent)
    for place, agent in enumerate(part.chain):
        if runs and work.deadline.left <= 0.0:
            break
        later = part.chain[place + 1 :]
        if agent != part.primary:
            if agent.name in taken:
                continue
            taken.add(agent.name)
        if later and call.rests(agent):
            runs.append(call.passed_over(agent))
            continue
        runs.append(await call(agent, leave_time(work, later)))
        failure = runs[-1].failure
        if failure is None or (failure.code is ErrorCode.SATURATED and agent == part.primary):
            break
    return PartRun(part, tuple(runs))


def leave_time(work: Work, later: Sequence[Agent]) -> Work:
    """Return the work with an earlier deadline, so that the agents that come later have time: at most `RESERVE` of what is left."""
    needed = sum(agent.timeout_ms for agent in later) / 1_000
    return replace(work, deadline=work.deadline.within(work.deadline.left - min(needed, work.deadline.left * RESERVE)))


def chain_seconds(part: Part) -> float:
    """Return the time that a chain may take by the timeouts: each agent's first attempt, an extended one, and its further retries."""
    attempts = (1.0 + (EXTENDED + agent.max_retries - 1 if agent.max_retries else 0.0) for agent in part.chain)
    return sum(agent.timeout_ms / 1_000 * factor for agent, factor in zip(part.chain, attempts, strict=True))


def conclude(parts: Sequence[PartRun], *further: Notice) -> Outcome:
    """Write down how the parts went, with a sentence for everything that did not go by plan."""
    warnings = [notice for part in parts for notice in _what_happened(part)]
    answered = any(part.answer is not None for part in parts)
    template = not answered and any(p.part.ends_in_template for p in parts if p.part.role is Role.ASKED)
    if template:
        warnings.append(Notice(code=TEMPLATE_ANSWER, message="No agent of the chain could answer; a fixed text stands in."))
    return Outcome(tuple(parts), template, (*warnings, *further))


def _what_happened(run: PartRun) -> list[Notice]:
    part = run.part
    by_itself = run.answer is not None and not run.by_another  # then nobody needed a fallback
    notices = [Notice(code=s.code, message=_sentence(s.reason)) for s in part.skipped if s.agent == part.primary or not by_itself]
    notices += [Notice(code=r.failure.code, message=_sentence(r.failure.detail)) for r in run.runs if r.failure is not None]
    if run.answer is not None and run.by_another:
        notices.append(Notice(code="fallback_used", message=f"{run.answer.agent.name} answers in place of {part.primary.name}."))
    return notices


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
