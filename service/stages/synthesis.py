"""Synthesis: one answer from what the agents brought. By template, and with an LM, where one is configured, by its signature.

The numbers, evidence and caveats are the agents'; nothing is added. A refusal, a question and a greeting are answers too.
"""

from dataclasses import dataclass

from pydantic import JsonValue

from service.catalog.model import Catalog
from service.contracts.decision import Action, RouteDecision
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.lm import Finding, LMFailure
from service.contracts.model import JsonObject
from service.contracts.notice import LANGUAGE_NOT_READ, Notice
from service.contracts.output import AgentResult, AgentStatus, Citation, OutputStatus
from service.deadline import Deadline
from service.errors import ErrorCode
from service.flows.agent_call import AgentRun
from service.flows.flow import TEMPLATE_ANSWER, Outcome, Verdict
from service.ports import Predictors

MAX_EVIDENCE = 6
MAX_SCALARS = 8
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

    async def __call__(self, query: str, decision: RouteDecision, verdict: Verdict, outcome: Outcome | None, deadline: Deadline) -> Answer:
        """Merge; `deadline` bounds the LM only."""
        if outcome is None:
            return self._without_agents(decision, verdict)
        results = tuple(describe_run(run) for run in outcome.runs)
        notices = outcome.warnings + tuple(w for run in outcome.runs for w in run.warnings)
        last = outcome.runs[-1] if outcome.runs else None
        if last is None or last.handoff is None:
            return Answer(OutputStatus.FAILED, self._failure_text(outcome), 0.0, results, warnings=notices)
        handoff = last.handoff
        instead = verdict.primary is not None and last.agent.name != verdict.primary.name
        findings = (
            Finding(agent_id=last.agent.name, summary=summarize(handoff), evidence=handoff.result.evidence, caveats=handoff.result.caveats),
        )
        stopped = "".join(f"{w.message}\n\n" for w in last.warnings if w.code == ErrorCode.QC_GATE_BLOCKED)
        preface = stopped or (self._preface(verdict, outcome) if instead else "")
        text, more = await self._compose(query, findings, deadline)
        intent = self._catalog.intent.get(decision.intent or "")
        return Answer(
            status=_status(last, instead=instead, unsure=any(w.code == ErrorCode.LOW_CONFIDENCE for w in last.warnings)),
            text=preface + text,
            confidence=handoff.result.confidence,
            results=results,
            citations=(
                Citation(
                    source_type=intent.citation if intent and not instead else "agent_activity",
                    source_id=f"{last.agent.name}:{handoff.dispatch_id}",
                    relevance=handoff.result.confidence,
                ),
            ),
            visualizations=handoff.artifacts.visualizations,
            follow_ups=intent.follow_ups if intent else (),
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

    async def _compose(self, query: str, findings: tuple[Finding, ...], deadline: Deadline) -> tuple[str, tuple[Notice, ...]]:
        plain = "\n\n".join(word(f) for f in findings)
        if self._predictors is None or deadline.left <= 0.0:
            return plain, ()
        worded = await self._predictors.compose(query, findings, timeout=deadline.left)
        if isinstance(worded, LMFailure):
            return plain, (Notice(code=f"lm_{worded.reason}", message=f"The LM did not word the answer: {worded.detail}"),)
        return worded, ()

    def _failure_text(self, outcome: Outcome) -> str:
        reasons = " ".join(w.message for w in outcome.warnings if w.code != TEMPLATE_ANSWER) or "No agent was called."
        if not outcome.template:
            return f"No agent could answer this request. {reasons}"
        text = self._catalog.template_text.replace("{wishes}", "; ".join(i.wish for i in self._catalog.intents))
        return f"{text}\n\nWhat happened: {reasons}"

    def _preface(self, verdict: Verdict, outcome: Outcome) -> str:
        name = verdict.primary.name if verdict.primary else "the agent"
        answering = outcome.runs[-1].agent.name
        why = outcome.warnings[0].message if outcome.warnings else ""
        return f"{name} could not answer ({why.rstrip('.')}), so {answering} answers what it can.\n\n"


def word(finding: Finding) -> str:
    """Word a finding without an LM: the summary, then the evidence that it does not repeat, then the caveats."""
    parts = [finding.summary]
    evidence = [e for e in finding.evidence if e.strip() not in {"", finding.summary}]
    if evidence:
        parts.append("Evidence:\n" + "\n".join(f"- {e}" for e in evidence[:MAX_EVIDENCE]))
    if finding.caveats:
        parts.append("Caveats:\n" + "\n".join(f"- {c}" for c in finding.caveats))
    return "\n\n".join(p for p in parts if p)


def summarize(handoff: AgentHandoff) -> str:
    """Return the agent's own `summary`, or else its first evidence, which states the finding, or else its scalar outputs as a list."""
    output = handoff.result.primary_output
    summary = output.get("summary")
    sentences = (summary if isinstance(summary, str) else "", *handoff.result.evidence)
    first = next((s.strip() for s in sentences if s.strip()), None)
    if first is not None:
        return first
    scalars = [f"{name.replace('_', ' ')}: {_show(v)}" for name, v in output.items() if isinstance(v, str | int | float | bool)]
    listed = "; ".join(scalars[:MAX_SCALARS])
    return f"{handoff.agent_id} reports {listed}." if listed else f"{handoff.agent_id} has finished."


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


def partial_answer(outcome: Outcome | None) -> Answer:
    """Return the agents' results as they are, for when merging them failed (the contract's SYNTHESIS_FAILED)."""
    results = tuple(describe_run(run) for run in outcome.runs) if outcome else ()
    notice = Notice(code=ErrorCode.SYNTHESIS_FAILED, message="The results could not be merged into a text; they are returned as they are.")
    status = OutputStatus.PARTIAL if any(r.result is not None for r in results) else OutputStatus.FAILED
    return Answer(status, notice.message, 0.0, results, warnings=(notice,))


def _status(run: AgentRun, *, instead: bool, unsure: bool) -> OutputStatus:
    status = run.handoff.execution.status if run.handoff else HandoffStatus.FAILED
    if status is HandoffStatus.BLOCKED:
        return OutputStatus.FAILED
    if instead or unsure or status is HandoffStatus.PARTIAL:
        return OutputStatus.PARTIAL
    return OutputStatus.SUCCESS


def _show(value: JsonValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
