"""Synthesis: one answer from what the agents brought. By template, and with an LM, where one is configured, by its signature.

The numbers, evidence and caveats are the agents'; nothing is added. A refusal, a question and a greeting are answers too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from service.catalog.model import Catalog
from service.contracts.decision import Action, RouteDecision
from service.contracts.handoff import AgentHandoff, HandoffResult, HandoffStatus
from service.contracts.lm import Finding, LMFailure, SynthesisQuestion
from service.contracts.model import JsonObject
from service.contracts.notice import LANGUAGE_NOT_READ, Notice
from service.contracts.output import AgentResult, AgentStatus, Citation, OutputStatus
from service.deadline import Deadline
from service.errors import ErrorCode
from service.flows.flow import TEMPLATE_ANSWER, Outcome, PartRun, Role, Verdict
from service.flows.work import AgentRun
from service.ports import Predictors
from service.programs import NO_ROUTER, Router
from service.routing.replies import ask

MAX_EVIDENCE = 6
MAX_SCALARS = 8
MAX_FOLLOW_UPS = 4
GREETING = "Hello. Ask me a question, and I will find the agent that can answer it."


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller reads."""

    status: OutputStatus
    text: str
    confidence: float
    results: tuple[AgentResult, ...] = ()
    citations: tuple[Citation, ...] = ()
    visualizations: tuple[JsonObject, ...] = ()
    follow_ups: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()


class Synthesize:
    """Decision, verdict and outcome → `Answer`."""

    def __init__(self, *, catalog: Catalog, predictors: Predictors | None) -> None:
        self._catalog = catalog
        self._predictors = predictors

    async def __call__(
        self, query: str, router: Router | None, decision: RouteDecision, verdict: Verdict, outcome: Outcome | None, deadline: Deadline
    ) -> Answer:
        """Merge; `deadline` bounds the LM only, which works by the program of the request's router version."""
        if outcome is None:
            return self._without_agents(decision, verdict)
        results = tuple(describe_run(run) for run in outcome.runs)
        notices = outcome.warnings + tuple(w for run in outcome.runs for w in run.warnings)
        answers = [part for part in outcome.parts if part.answer is not None]
        if not answers:
            return Answer(OutputStatus.FAILED, self._failure_text(outcome), 0.0, results, warnings=notices)
        text, more = await self._compose(query, router, answers, deadline)
        intents = [self._catalog.intent[p.part.intent] for p in outcome.parts if p.part.intent in self._catalog.intent]
        return Answer(
            status=_status(verdict, outcome),
            text=self._preface(outcome) + text + self._offer(decision, verdict),
            confidence=_confidence(outcome),
            results=results,
            citations=tuple(self._cite(part) for part in answers),
            visualizations=tuple(chart for handoff in map(_handoff, answers) for chart in handoff.artifacts.visualizations),
            follow_ups=tuple(dict.fromkeys(text for intent in intents for text in intent.follow_ups))[:MAX_FOLLOW_UPS],
            warnings=notices + more,
        )

    def _without_agents(self, decision: RouteDecision, verdict: Verdict) -> Answer:
        notices = (Notice(code=verdict.code, message=verdict.reason),) if verdict.code is not None else ()
        if verdict.action is Action.SOCIAL:
            return Answer(OutputStatus.SUCCESS, GREETING, decision.confidence)
        if verdict.action is Action.CLARIFY:
            question = verdict.reason or decision.question or "What would you like to know?"
            return Answer(OutputStatus.PARTIAL, question, decision.confidence, warnings=notices)
        if verdict.code is not None:
            return Answer(OutputStatus.FAILED, f"This request was not carried out: {verdict.reason}", decision.confidence, warnings=notices)
        wishes = "\n".join(f"- {i.wish}" for i in self._catalog.intents)
        unread = next((w.message for w in decision.warnings if w.code == LANGUAGE_NOT_READ), None)
        text = f"{unread or 'None of the agents here can answer this.'} You can ask to:\n\n{wishes}"
        return Answer(OutputStatus.FAILED, text, decision.oos_score)

    async def _compose(
        self, query: str, router: Router | None, answers: Sequence[PartRun], deadline: Deadline
    ) -> tuple[str, tuple[Notice, ...]]:
        plain = "\n\n".join(map(_word_part, answers))
        if self._predictors is None or deadline.left <= 0.0:
            return plain, ()
        question = SynthesisQuestion(
            query=query,
            findings=tuple(finding_of(handoff.agent_id, handoff.result) for handoff in map(_handoff, answers)),
            router_version=router.version if router is not None else NO_ROUTER,
            programs=router.programs if router is not None else {},
        )
        text = await self._predictors.compose(question, timeout=deadline.left)
        if isinstance(text, LMFailure):
            return plain, (Notice(code=f"lm_{text.reason}", message=f"The LM did not word the answer: {text.detail}"),)
        return text, ()

    def _cite(self, run: PartRun) -> Citation:
        handoff, intent = _handoff(run), self._catalog.intent.get(run.part.intent)
        own = intent is not None and run.part.role is not Role.SUPPORTS and not run.by_another
        return Citation(
            source_type=intent.citation if own and intent is not None else "agent_activity",
            source_id=f"{handoff.agent_id}:{handoff.dispatch_id}",
            relevance=handoff.result.confidence,
        )

    def _offer(self, decision: RouteDecision, verdict: Verdict) -> str:
        """Ask about what was asked for and waits for a word of its own; a "yes" is then understood."""
        done = {part.intent for part in verdict.parts}
        left = [self._catalog.intent[i].wish for i in decision.intents if i not in done]
        return f"\n\n{ask(left)}" if left else ""

    def _failure_text(self, outcome: Outcome) -> str:
        reasons = " ".join(w.message for w in outcome.warnings if w.code != TEMPLATE_ANSWER) or "No agent was called."
        if not outcome.template:
            return f"No agent could answer this request. {reasons}"
        text = self._catalog.template_text.replace("{wishes}", "; ".join(i.wish for i in self._catalog.intents))
        return f"{text}\n\nWhat happened: {reasons}"

    def _preface(self, outcome: Outcome) -> str:
        """Say first what stopped the work, or for whom somebody else answers or nobody does."""
        stopped = [w.message for run in outcome.runs for w in run.warnings if w.code == ErrorCode.QC_GATE_BLOCKED]
        lines = [*stopped, *(line for part in outcome.parts if (line := _missing(part)) is not None)]
        return "".join(f"{line}\n\n" for line in lines)


def _missing(run: PartRun) -> str | None:
    name, answer = run.part.primary.name, run.answer
    if run.part.role is Role.SUPPORTS or (answer is not None and not run.by_another):
        return None
    failures = [r.failure.detail for r in run.runs if r.failure is not None]
    why = next(iter([*(s.reason for s in run.part.skipped), *failures]), "it was not called").rstrip(".")
    if answer is None:
        return f"{name} could not answer ({why})."
    return f"{name} could not answer ({why}), so {answer.agent.name} answers what it can."


def _handoff(run: PartRun) -> AgentHandoff:
    answer = run.answer
    if answer is None or answer.handoff is None:
        raise ValueError(f"{run.part.primary.name} has no answer")
    return answer.handoff


def finding_of(agent_id: str, result: HandoffResult) -> Finding:
    """Return what an agent found, for those who word it."""
    return Finding(agent_id=agent_id, summary=summarize(agent_id, result), evidence=result.evidence, caveats=result.caveats)


def _word_part(run: PartRun) -> str:
    """Word a part: what was asked for in full, what stands beside it in short."""
    handoff = _handoff(run)
    finding = finding_of(handoff.agent_id, handoff.result)
    if run.part.role is Role.ASKED:
        return word(finding)
    label = finding.agent_id.replace("_", " ")
    return f"{label[0].upper()}{label[1:]}: {finding.summary}"


def word(finding: Finding) -> str:
    """Word a finding without an LM: the summary, then the evidence that it does not repeat, then the caveats."""
    parts = [finding.summary]
    evidence = [e for e in finding.evidence if e.strip() not in {"", finding.summary}]
    if evidence:
        parts.append("Evidence:\n" + "\n".join(f"- {e}" for e in evidence[:MAX_EVIDENCE]))
    if finding.caveats:
        parts.append("Caveats:\n" + "\n".join(f"- {c}" for c in finding.caveats))
    return "\n\n".join(p for p in parts if p)


def summarize(agent_id: str, result: HandoffResult) -> str:
    """Return the agent's own `summary`, or else its first evidence, which states the finding, or else its scalar outputs as a list."""
    output = result.primary_output
    summary = output.get("summary")
    sentences = (summary if isinstance(summary, str) else "", *result.evidence)
    first = next((s.strip() for s in sentences if s.strip()), None)
    if first is not None:
        return first
    scalars = [f"{name.replace('_', ' ')}: {_show(v)}" for name, v in output.items() if isinstance(v, str | int | float | bool)]
    listed = "; ".join(scalars[:MAX_SCALARS])
    return f"{agent_id} reports {listed}." if listed else f"{agent_id} has finished."


def describe_run(run: AgentRun) -> AgentResult:
    """Turn a run into the result that the caller sees."""
    agent, handoff, failure = run.agent, run.handoff, run.failure
    if handoff is None:
        late = failure is not None and failure.code is ErrorCode.AGENT_TIMEOUT
        status = AgentStatus.TIMEOUT if late else AgentStatus.FAILED
        error = f"{failure.code.value}: {failure.detail}" if failure else None
        return AgentResult(
            agent_id=agent.name, agent_tier=agent.tier, status=status, result=None, confidence=0.0, latency_ms=run.latency_ms, error=error
        )
    blocked = handoff.execution.status is HandoffStatus.BLOCKED
    result: dict[str, JsonValue] = {
        "primary_output": handoff.result.primary_output,
        "evidence": list(handoff.result.evidence),
        "caveats": list(handoff.result.caveats),
        "tables": list(handoff.artifacts.tables),
        "models": list(handoff.artifacts.models),
    }
    return AgentResult(
        agent_id=agent.name,
        agent_tier=agent.tier,
        status=AgentStatus.FAILED if blocked else AgentStatus(handoff.execution.status.value),
        result=result,
        confidence=handoff.result.confidence,
        latency_ms=run.latency_ms,
        error=f"{ErrorCode.QC_GATE_BLOCKED.value}: {handoff.errors.error_message or 'blocked'}" if blocked else None,
    )


UNMERGED = Notice(code=ErrorCode.SYNTHESIS_FAILED, message="The results could not be merged into a text; they are returned as they are.")


def partial_answer(outcome: Outcome | None, notice: Notice = UNMERGED) -> Answer:
    """Return the agents' results as they are, for when merging them failed (the contract's SYNTHESIS_FAILED) or nobody waits for it."""
    results = tuple(describe_run(run) for run in outcome.runs) if outcome else ()
    status = OutputStatus.PARTIAL if any(r.result is not None for r in results) else OutputStatus.FAILED
    return Answer(status, notice.message, 0.0, results, warnings=(notice,))


def _status(verdict: Verdict, outcome: Outcome) -> OutputStatus:
    """Return success when every part has the sure answer of its own agent; a pipeline that does not reach its end has failed."""
    runs = outcome.runs
    blocked = any(run.handoff is not None and run.handoff.execution.status is HandoffStatus.BLOCKED for run in runs)
    halfway = verdict.flow == "pipeline" and not (len(outcome.parts) == len(verdict.parts) and outcome.parts[-1].answer is not None)
    if blocked or halfway:
        return OutputStatus.FAILED
    whole = all(part.answer is not None and not part.by_another for part in outcome.parts)
    sure = not any(w.code == ErrorCode.LOW_CONFIDENCE for run in runs for w in run.warnings)
    finished = all(run.handoff is None or run.handoff.execution.status is HandoffStatus.SUCCESS for run in runs)
    return OutputStatus.SUCCESS if whole and sure and finished else OutputStatus.PARTIAL


def _confidence(outcome: Outcome) -> float:
    """Return the least confidence among the answers that were asked for, or of all where none of those came."""
    answers = [part for part in outcome.parts if part.answer is not None]
    asked = [part for part in answers if part.part.role is not Role.SUPPORTS]
    return min(_handoff(part).result.confidence for part in asked or answers)


def _show(value: JsonValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
