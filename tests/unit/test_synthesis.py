"""Synthesis says what the agents found, with their evidence and caveats, and says plainly when they found nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalog.loader import load_catalog
from service.contracts.decision import Action
from service.contracts.handoff import AgentHandoff, HandoffArtifacts, HandoffErrors, HandoffStatus
from service.contracts.lm import Finding, LMFailure, LMVerdict
from service.contracts.notice import Notice
from service.contracts.output import AgentStatus, Citation, OutputStatus
from service.deadline import Deadline
from service.errors import ErrorCode
from service.flows.flow import Outcome, Verdict
from service.flows.work import AgentRun
from service.stages.synthesis import GREETING, MAX_EVIDENCE, Answer, Synthesize, describe_run, partial_answer, summarize, word
from tests.fakes import ScriptedPredictors, down
from tests.unit.turns import a_decision, a_handoff, a_part, a_run, an_agent, an_outcome

CATALOG = load_catalog()
CAUSAL, EXPLAINER = an_agent(CATALOG, "causal_impact"), an_agent(CATALOG, "explainer")
UNUSED = LMVerdict(intent="", sub_intent="", primary_agent="", secondary_agents=(), confidence=0.0, rationale="")
FOUND: dict[str, Any] = {
    "primary_output": {"summary": "Visits lift TRx by 0.12.", "ate": 0.12},
    "confidence": 0.87,
    "evidence": ("Placebo: 0.002.", "512 HCPs."),
    "caveats": ("Oncology only.",),
}


def dispatched(*, intent: str = "causal_impact") -> Verdict:
    """Return a verdict that dispatches to causal_impact."""
    return Verdict(Action.DISPATCH, parts=(a_part(CAUSAL, EXPLAINER, intent=intent),))


async def merge(
    *runs: AgentRun,
    verdict: Verdict | None = None,
    warnings: tuple[Notice, ...] = (),
    template: bool = False,
    lm: str | LMFailure | None = None,
    seconds: float = 1.0,
    **decision: Any,
) -> Answer:
    """Merge runs into an answer; `lm` is what the LM makes of them, where one is configured."""
    predictors = ScriptedPredictors(UNUSED, lm) if lm is not None else None
    stage = Synthesize(catalog=CATALOG, predictors=predictors)
    verdict = verdict or dispatched()
    outcome = an_outcome(*runs, part=verdict.parts[0], template=template, warnings=warnings)
    return await stage("Did it?", None, a_decision(**decision), verdict, outcome, Deadline.after(seconds))


async def refuse(verdict: Verdict, **decision: Any) -> Answer:
    """Answer without agents."""
    stage = Synthesize(catalog=CATALOG, predictors=None)
    return await stage("Hi", None, a_decision(None, **decision), verdict, None, Deadline.after(1.0))


async def test_the_text_holds_numbers_evidence_and_caveats() -> None:
    """Nothing that the agent found is left out, nothing is added."""
    answer = await merge(a_run(CAUSAL, a_handoff(CAUSAL, **FOUND)))

    assert answer.text == "Visits lift TRx by 0.12.\n\nEvidence:\n- Placebo: 0.002.\n- 512 HCPs.\n\nCaveats:\n- Oncology only."
    assert (answer.status, answer.confidence, answer.warnings) == (OutputStatus.SUCCESS, 0.87, ())


STATUSES = {
    "success": (a_run(CAUSAL), OutputStatus.SUCCESS),
    "partial": (a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.PARTIAL)), OutputStatus.PARTIAL),
    "blocked": (a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.BLOCKED)), OutputStatus.FAILED),
    "another agent's answer": (a_run(EXPLAINER), OutputStatus.PARTIAL),
    "another agent, blocked": (a_run(EXPLAINER, a_handoff(EXPLAINER, HandoffStatus.BLOCKED)), OutputStatus.FAILED),
    "unsure": (a_run(CAUSAL, warnings=(Notice(code=ErrorCode.LOW_CONFIDENCE, message="…"),)), OutputStatus.PARTIAL),
    "late": (a_run(CAUSAL, warnings=(Notice(code="latency_exceeded", message="…"),)), OutputStatus.SUCCESS),
    "failed": (a_run(CAUSAL, down()), OutputStatus.FAILED),
}


@pytest.mark.parametrize(("run", "status"), STATUSES.values(), ids=STATUSES)
async def test_the_status_says_how_far_the_answer_can_be_trusted(run: AgentRun, status: OutputStatus) -> None:
    """Success only for a sure, complete answer of the agent that was chosen."""
    answer = await merge(run)

    assert answer.status is status


async def test_a_fallbacks_answer_says_whose_it_is_and_why() -> None:
    """The reader learns it before the answer, not from the fine print."""
    why = Notice(code="agent_unavailable", message="The agent failed.")

    answer = await merge(a_run(CAUSAL, down()), a_run(EXPLAINER), warnings=(why,))

    assert answer.text.startswith("causal_impact could not answer (the agent failed as scripted), so explainer answers what it can.\n\n")
    assert "explainer finds 42." in answer.text
    assert [r.status for r in answer.results] == [AgentStatus.FAILED, AgentStatus.SUCCESS]
    assert answer.warnings == (why,)


async def test_a_blocked_answer_says_what_stopped_it() -> None:
    """The quality gate's reason stands before its report, and the report is in the result."""
    handoff = a_handoff(CAUSAL, HandoffStatus.BLOCKED, primary_output={"failed_checks": 3}, evidence=(), caveats=())
    notice = Notice(code=ErrorCode.QC_GATE_BLOCKED, message="causal_impact was stopped by its quality gate: 3 of 40 checks failed")

    answer = await merge(a_run(CAUSAL, handoff, warnings=(notice,)))

    assert answer.text == f"{notice.message}\n\ncausal_impact reports failed checks: 3."
    assert answer.results[0].status is AgentStatus.FAILED
    assert (answer.results[0].error or "").startswith("qc_gate_blocked: ")
    assert answer.results[0].result["primary_output"] == {"failed_checks": 3}  # type: ignore[index, call-overload]  # JSON
    assert answer.warnings == (notice,)


async def test_an_answer_cites_its_source_in_the_intents_kind() -> None:
    """The routing table says what an intent's answers rest on; a stand-in's answer rests on its own activity."""
    handoff = a_handoff(CAUSAL)
    own = await merge(a_run(CAUSAL, handoff))
    instead = await merge(a_run(EXPLAINER))
    unknown = await merge(a_run(CAUSAL), verdict=dispatched(intent="unheard_of"), intent=None)

    assert own.citations == (Citation(source_type="causal_path", source_id=f"causal_impact:{handoff.dispatch_id}", relevance=0.9),)
    assert [c.source_type for c in instead.citations + unknown.citations] == ["agent_activity", "agent_activity"]


async def test_charts_and_follow_ups_are_passed_on() -> None:
    """Charts are the agent's, follow-ups the intent's."""
    handoff = a_handoff(CAUSAL).model_copy(update={"artifacts": HandoffArtifacts(visualizations=({"mark": "bar"},))})

    answer = await merge(a_run(CAUSAL, handoff))

    assert answer.visualizations == ({"mark": "bar"},)
    assert answer.follow_ups == CATALOG.intent["causal_impact"].follow_ups


async def test_the_warnings_of_flow_and_agents_are_all_kept() -> None:
    """First the flow's, then each agent's, then the LM's."""
    flow, agent = Notice(code="fallback_used", message="…"), Notice(code="latency_exceeded", message="…")

    answer = await merge(a_run(EXPLAINER, warnings=(agent,)), warnings=(flow,), lm=LMFailure(reason="timeout", detail="slow"))

    assert [w.code for w in answer.warnings] == ["fallback_used", "latency_exceeded", "lm_timeout"]


async def test_an_lms_wording_is_used_when_there_is_one() -> None:
    """The preface stays, because it is not for the LM to leave it out."""
    answer = await merge(a_run(CAUSAL), lm="In short: 42.")
    instead = await merge(a_run(CAUSAL, down()), a_run(EXPLAINER), lm="In short: 42.")

    assert (answer.text, answer.warnings) == ("In short: 42.", ())
    why = "the agent failed as scripted"
    assert instead.text == f"causal_impact could not answer ({why}), so explainer answers what it can.\n\nIn short: 42."


@pytest.mark.parametrize("reason", ["timeout", "invalid_output", "error"])
async def test_an_lm_that_fails_leaves_the_plain_wording_and_a_warning(reason: str) -> None:
    """The answer does not depend on the LM."""
    plain = await merge(a_run(CAUSAL, a_handoff(CAUSAL, **FOUND)))

    answer = await merge(a_run(CAUSAL, a_handoff(CAUSAL, **FOUND)), lm=LMFailure(reason=reason, detail="scripted"))

    assert (answer.text, answer.status) == (plain.text, plain.status)
    assert [w.code for w in answer.warnings] == [f"lm_{reason}"]


async def test_without_time_the_lm_is_not_asked() -> None:
    """The decision's budget covers the wording."""
    answer = await merge(a_run(CAUSAL, a_handoff(CAUSAL, **FOUND)), lm="In short: 42.", seconds=0.0)

    assert answer.text.startswith("Visits lift TRx by 0.12.")
    assert answer.warnings == ()


async def test_when_nobody_answers_the_template_stands_in() -> None:
    """It offers every wish of the catalogue, says what happened, and leaves no placeholder."""
    why = Notice(code="agent_timeout", message="causal_impact did not answer.")

    answer = await merge(a_run(CAUSAL, down()), template=True, warnings=(why, Notice(code="template_answer", message="Template.")))

    assert answer.text.startswith("No agent could answer this request")
    assert all(intent.wish in answer.text for intent in CATALOG.intents)
    assert "causal_impact did not answer." in answer.text
    assert not {"{", "}"} & set(answer.text)
    assert (answer.status, answer.confidence, answer.citations) == (OutputStatus.FAILED, 0.0, ())


async def test_without_a_template_the_failure_gives_its_reasons() -> None:
    """Tier 0 fails; the reader learns why."""
    answer = await merge(a_run(CAUSAL, down()), warnings=(Notice(code="agent_timeout", message="It was late."),))
    nobody = await merge()

    assert answer.text == "No agent could answer this request. It was late."
    assert nobody.text == "No agent could answer this request. No agent was called."


async def test_a_greeting_is_answered_in_kind() -> None:
    """Success, without an agent."""
    answer = await refuse(Verdict(Action.SOCIAL), action="social")

    assert (answer.status, answer.text, answer.results) == (OutputStatus.SUCCESS, GREETING, ())


@pytest.mark.parametrize(
    ("reason", "question", "text"),
    [
        ("", "Do you want a; or b?", "Do you want a; or b?"),
        ("Which brand do you mean?", None, "Which brand do you mean?"),
        ("", None, "What would you like to know?"),
    ],
    ids=["the decision's question", "the gate's question", "no question"],
)
async def test_a_clarifying_answer_is_the_question(reason: str, question: str | None, text: str) -> None:
    """Partial: the caller can go on from here."""
    code = ErrorCode.MISSING_ENTITY if reason else None

    answer = await refuse(Verdict(Action.CLARIFY, code=code, reason=reason), action="clarify", question=question)

    assert (answer.status, answer.text) == (OutputStatus.PARTIAL, text)
    assert [w.code for w in answer.warnings] == ([code] if code else [])


async def test_a_question_out_of_scope_is_refused_with_an_offer() -> None:
    """The reader learns what the agents can do."""
    answer = await refuse(Verdict(Action.REFUSE), action="refuse", oos_score=0.9)

    assert answer.status is OutputStatus.FAILED
    assert all(intent.wish in answer.text for intent in CATALOG.intents)
    assert answer.confidence == pytest.approx(0.9)


async def test_a_refusal_for_the_language_says_so() -> None:
    """In the text that people read, not only in a warning; what was asked is not judged."""
    message = "The question seems to be in a language that this router does not read (de)."

    answer = await refuse(
        Verdict(Action.REFUSE), action="refuse", oos_score=0.9, warnings=(Notice(code="language_not_read", message=message),)
    )

    assert answer.text.startswith(message)
    assert "None of the agents" not in answer.text
    assert all(intent.wish in answer.text for intent in CATALOG.intents)


async def test_what_the_gate_stops_is_refused_with_the_gates_reason() -> None:
    """The code is in the warnings."""
    answer = await refuse(Verdict(Action.REFUSE, code=ErrorCode.PERMISSION_DENIED, reason="x needs the permission y."))

    assert (answer.status, answer.text) == (OutputStatus.FAILED, "This request was not carried out: x needs the permission y.")
    assert [w.code for w in answer.warnings] == ["permission_denied"]


SUMMARIES: dict[str, tuple[dict[str, Any], str]] = {
    "the agent's own": ({"primary_output": {"summary": "  It rose.  "}}, "It rose."),
    "first evidence": ({"primary_output": {"ate": 1}, "evidence": ("First.", "Second.")}, "First."),
    "blank evidence": ({"primary_output": {"ate": 1}, "evidence": (" ", "Second.")}, "Second."),
    "blank summary": ({"primary_output": {"summary": " "}, "evidence": ("First.",)}, "First."),
    "summary of another type": ({"primary_output": {"summary": 5}}, "causal_impact reports summary: 5."),
    "scalars": (
        {"primary_output": {"p_value": 0.0031234, "rows": 12, "refutation_passed": True, "by": "HCP", "interval": [1, 2]}},
        "causal_impact reports p value: 0.003123; rows: 12; refutation passed: True; by: HCP.",
    ),
    "eight scalars at most": (
        {"primary_output": {f"n{i}": i for i in range(20)}},
        "causal_impact reports n0: 0; n1: 1; n2: 2; n3: 3; n4: 4; n5: 5; n6: 6; n7: 7.",
    ),
    "nothing to say": ({"primary_output": {"rows": [1]}}, "causal_impact has finished."),
    "nothing at all": ({"primary_output": {}}, "causal_impact has finished."),
}


@pytest.mark.parametrize(("result", "summary"), SUMMARIES.values(), ids=SUMMARIES)
def test_without_a_summary_the_scalars_speak(result: dict[str, Any], summary: str) -> None:
    """The agent's summary, else its first evidence, else its numbers; never an invented sentence."""
    handoff = a_handoff(CAUSAL, **{"evidence": (), "caveats": (), **result})

    assert summarize(handoff.agent_id, handoff.result) == summary


async def test_evidence_is_not_told_twice_and_not_endlessly() -> None:
    """What the summary says is not repeated, and six pieces are enough; every caveat stays."""
    many = tuple(f"Evidence {i}." for i in range(20))

    answer = await merge(a_run(CAUSAL, a_handoff(CAUSAL, primary_output={}, evidence=many, caveats=many)))

    assert answer.text.count("Evidence 0.") == 2
    evidence, _, caveats = answer.text.partition("Caveats:")
    assert evidence.count("\n- ") == MAX_EVIDENCE
    assert caveats.count("\n- ") == len(many)


RUNS = {
    "success": (a_run(CAUSAL), AgentStatus.SUCCESS, None),
    "partial": (a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.PARTIAL)), AgentStatus.PARTIAL, None),
    "timeout": (a_run(CAUSAL, down(ErrorCode.AGENT_TIMEOUT)), AgentStatus.TIMEOUT, "agent_timeout: the agent failed as scripted"),
    "unavailable": (a_run(CAUSAL, down()), AgentStatus.FAILED, "agent_unavailable: the agent failed as scripted"),
    "bad handoff": (
        a_run(CAUSAL, down(ErrorCode.HANDOFF_INVALID)),
        AgentStatus.FAILED,
        "handoff_invalid: the agent failed as scripted",
    ),
    "blocked": (a_run(CAUSAL, a_handoff(CAUSAL, HandoffStatus.BLOCKED)), AgentStatus.FAILED, "qc_gate_blocked: blocked"),
}


@pytest.mark.parametrize(("run", "status", "error"), RUNS.values(), ids=RUNS)
def test_each_run_becomes_a_result_that_the_caller_can_read(run: AgentRun, status: AgentStatus, error: str | None) -> None:
    """The error begins with its code."""
    result = describe_run(run)

    assert (result.agent_id, result.agent_tier, result.status, result.error) == ("causal_impact", 2, status, error)
    assert (result.result is None) is (run.handoff is None)


def test_a_result_holds_everything_that_the_agent_returned() -> None:
    """Output, evidence, caveats, tables and models."""
    handoff: AgentHandoff = a_handoff(CAUSAL, **FOUND).model_copy(
        update={
            "artifacts": HandoffArtifacts(tables=({"rows": 1},), models=({"uri": "m"},)),
            "errors": HandoffErrors(error_message="ignored here"),
        }
    )

    assert describe_run(a_run(CAUSAL, handoff)).result == {
        "primary_output": {"summary": "Visits lift TRx by 0.12.", "ate": 0.12},
        "evidence": ["Placebo: 0.002.", "512 HCPs."],
        "caveats": ["Oncology only."],
        "tables": [{"rows": 1}],
        "models": [{"uri": "m"}],
    }


@pytest.mark.parametrize(
    ("outcome", "status", "count"),
    [
        (None, OutputStatus.FAILED, 0),
        (Outcome(()), OutputStatus.FAILED, 0),
        (an_outcome(a_run(CAUSAL, down())), OutputStatus.FAILED, 1),
        (an_outcome(a_run(CAUSAL, down()), a_run(EXPLAINER)), OutputStatus.PARTIAL, 2),
    ],
    ids=["no outcome", "no run", "a failed run", "an answer"],
)
def test_when_merging_fails_the_results_are_returned_as_they_are(outcome: Outcome | None, status: OutputStatus, count: int) -> None:
    """The contract's SYNTHESIS_FAILED: partial results with a caveat."""
    answer = partial_answer(outcome)

    assert (answer.status, len(answer.results)) == (status, count)
    assert [w.code for w in answer.warnings] == ["synthesis_failed"]


texts = st.text(max_size=30)


@given(summary=st.none() | texts, evidence=st.lists(texts, max_size=8), caveats=st.lists(texts, max_size=4), ate=st.floats(-1e6, 1e6))
async def test_every_caveat_is_in_the_text_whatever_the_agent_says(
    summary: str | None, evidence: list[str], caveats: list[str], ate: float
) -> None:
    """Merging is total, and leaves no warning of the agent's out."""
    output: dict[str, Any] = {"ate": ate, **({"summary": summary} if summary is not None else {})}

    answer = await merge(a_run(CAUSAL, a_handoff(CAUSAL, primary_output=output, evidence=tuple(evidence), caveats=tuple(caveats))))

    assert answer.text.strip()
    assert all(f"- {caveat}" in answer.text for caveat in caveats)


def test_a_finding_is_worded_without_empty_parts() -> None:
    """No heading stands over nothing."""
    assert word(Finding(agent_id="x", summary="It rose.")) == "It rose."
