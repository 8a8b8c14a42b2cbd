"""The cascade: each rung answers when it should, says so, and whatever the LM does, there is an answer."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contracts.decision import Action, RouteDecision, Rung
from service.contracts.lm import LMFailure, LMVerdict
from service.contracts.notice import Notice
from service.contracts.query import Preferences
from service.deadline import Deadline
from service.programs import Router
from service.stages.routing import LM_RESERVE, Route
from tests.fakes import ScriptedPredictors
from tests.unit.turns import CATALOG, HOSTED, INTENTS, VERDICT, a_router, admitted, understood

LOCAL = "local"


@dataclass
class Case:
    """A request, what is read in it, and what the cascade makes of it."""

    action: Action
    rung: Rung
    agent: str | None = None
    warnings: tuple[str, ...] = ()
    asked: bool = False
    admitted: dict[str, Any] = field(default_factory=dict)
    best: float = 0.95
    oos: float = 0.1
    caller_decides: bool = False
    lm: str | None = None
    answer: LMVerdict | LMFailure = VERDICT
    router: Router | None = field(default_factory=a_router)
    seconds: float = 2.0


D, C, R, S = Action.DISPATCH, Action.CLARIFY, Action.REFUSE, Action.SOCIAL
FORCED_STUDENT, FORCED_LM = {"preferences": Preferences(rung="student")}, {"preferences": Preferences(rung="lm")}


def failed(reason: str) -> LMFailure:
    """Return a failure of the LM."""
    return LMFailure(reason=reason, detail="scripted")


CASES = {
    "social": Case(S, Rung.RULES, admitted={"social": True}),
    "social goes before an explicit agent": Case(S, Rung.RULES, admitted={"social": True, "explicit_agent": "explainer"}),
    "social goes before the caller": Case(S, Rung.RULES, admitted={"social": True, "caller_intent": "prediction"}, caller_decides=True),
    "empty": Case(C, Rung.RULES, admitted={"empty": True}),
    "empty goes before the caller": Case(C, Rung.RULES, admitted={"empty": True, "caller_intent": "prediction"}, caller_decides=True),
    "explicit agent": Case(D, Rung.RULES, "drift_monitor", admitted={"explicit_agent": "drift_monitor"}),
    "explicit agent that is primary for no intent": Case(
        D, Rung.RULES, "model_trainer", admitted={"explicit_agent": "model_trainer", "text": "@model_trainer train churn"}
    ),
    "explicit agent that cannot be undone, named only": Case(
        C, Rung.RULES, admitted={"explicit_agent": "model_trainer", "text": "@model_trainer is it done?"}
    ),
    "explicit agent goes before the caller": Case(
        D, Rung.RULES, "explainer", admitted={"explicit_agent": "explainer", "caller_intent": "prediction"}, caller_decides=True
    ),
    "explicit agent goes before a forced rung": Case(
        D, Rung.RULES, "explainer", admitted={"explicit_agent": "explainer", **FORCED_LM}, lm=HOSTED
    ),
    "rules need no router": Case(D, Rung.RULES, "explainer", admitted={"explicit_agent": "explainer"}, router=None),
    "trusted caller": Case(D, Rung.CALLER, "prediction_synthesizer", admitted={"caller_intent": "prediction"}, caller_decides=True),
    "trusted caller needs no router": Case(
        D, Rung.CALLER, "prediction_synthesizer", admitted={"caller_intent": "prediction"}, caller_decides=True, router=None
    ),
    "trusted caller goes before the LM": Case(
        D, Rung.CALLER, "prediction_synthesizer", admitted={"caller_intent": "prediction"}, caller_decides=True, best=0.3, lm=HOSTED
    ),
    "unknown intent": Case(
        D, Rung.RULES, "explainer", admitted={"caller_intent": "explanation", "unknown_intent": True}, caller_decides=True
    ),
    "weighed caller": Case(D, Rung.STUDENT, "causal_impact", admitted={"caller_intent": "prediction"}),
    "student is sure": Case(D, Rung.STUDENT, "causal_impact", lm=HOSTED),
    "student at the threshold": Case(D, Rung.STUDENT, "causal_impact", best=0.9, lm=HOSTED),
    "student below it, no LM": Case(D, Rung.STUDENT, "causal_impact", ("low_routing_confidence",), best=0.7),
    "student unsure, no LM": Case(C, Rung.STUDENT, best=0.4),
    "out of scope": Case(R, Rung.STUDENT, oos=0.81),
    "out of scope goes before the LM": Case(R, Rung.STUDENT, oos=0.81, best=0.4, lm=HOSTED),
    "at the out-of-scope threshold": Case(D, Rung.STUDENT, "causal_impact", oos=0.8),
    "a policy that never lets the student act alone": Case(
        D, Rung.STUDENT, "causal_impact", ("low_routing_confidence",), best=1.0, router=a_router(act_above=1.01)
    ),
    "LM asked below the threshold": Case(D, Rung.LM, "gap_analyzer", asked=True, best=0.89, lm=HOSTED),
    "LM asked where the student would clarify": Case(D, Rung.LM, "gap_analyzer", asked=True, best=0.3, lm=HOSTED),
    "local LM has to earn its place": Case(C, Rung.STUDENT, best=0.3, lm=LOCAL),
    "local LM that has": Case(D, Rung.LM, "gap_analyzer", asked=True, best=0.3, lm=LOCAL, router=a_router(trusted_lms=("local",))),
    "hosted LM that evidence speaks against": Case(C, Rung.STUDENT, best=0.3, lm=HOSTED, router=a_router(kept_out_lms=(HOSTED,))),
    "evidence against goes before trust": Case(
        C, Rung.STUDENT, best=0.3, lm=HOSTED, router=a_router(kept_out_lms=(HOSTED,), trusted_lms=(HOSTED,))
    ),
    "forced student": Case(C, Rung.STUDENT, best=0.3, lm=HOSTED, admitted=FORCED_STUDENT),
    "forced LM though the student is sure": Case(D, Rung.LM, "gap_analyzer", asked=True, lm=HOSTED, admitted=FORCED_LM),
    "forced LM though out of scope": Case(D, Rung.LM, "gap_analyzer", asked=True, oos=0.99, lm=HOSTED, admitted=FORCED_LM),
    "forced LM without evidence": Case(D, Rung.LM, "gap_analyzer", asked=True, lm=LOCAL, admitted=FORCED_LM),
    "forced LM that is not there": Case(D, Rung.STUDENT, "causal_impact", ("lm_not_configured",), admitted=FORCED_LM),
    "forced LM that fails, out of scope": Case(
        R, Rung.STUDENT, warnings=("lm_error",), asked=True, oos=0.99, lm=HOSTED, admitted=FORCED_LM, answer=failed("error")
    ),
    **{
        f"LM fails: {reason}": Case(
            D,
            Rung.STUDENT,
            "causal_impact",
            (f"lm_{reason}", "low_routing_confidence"),
            asked=True,
            best=0.7,
            lm=HOSTED,
            answer=failed(reason),
        )
        for reason in ("timeout", "unavailable", "invalid_output", "breaker_open", "error")
    },
    "LM fails where the student would clarify": Case(
        C, Rung.STUDENT, warnings=("lm_timeout",), asked=True, best=0.3, lm=HOSTED, answer=failed("timeout")
    ),
    "LM chooses an agent that was not offered": Case(
        C,
        Rung.STUDENT,
        warnings=("lm_invalid_output",),
        asked=True,
        best=0.3,
        lm=HOSTED,
        answer=VERDICT.model_copy(update={"primary_agent": "model_deployer"}),
    ),
    "LM adds an agent that was not offered": Case(
        C,
        Rung.STUDENT,
        warnings=("lm_invalid_output",),
        asked=True,
        best=0.3,
        lm=HOSTED,
        answer=VERDICT.model_copy(update={"secondary_agents": ("model_deployer",)}),
    ),
    "LM invents an intent": Case(
        C, Rung.STUDENT, warnings=("lm_invalid_output",), asked=True, best=0.3, lm=HOSTED, answer=VERDICT.model_copy(update={"intent": "x"})
    ),
    "no time for the LM": Case(C, Rung.STUDENT, warnings=("lm_timeout",), best=0.3, lm=HOSTED, seconds=LM_RESERVE / 2),
    "no router": Case(D, Rung.SAFE_DEFAULT, "explainer", ("no_router",), router=None),
    "no router, weighed caller": Case(
        D, Rung.SAFE_DEFAULT, "explainer", ("no_router",), router=None, admitted={"caller_intent": "prediction"}
    ),
    "no router, forced LM": Case(D, Rung.SAFE_DEFAULT, "explainer", ("no_router",), router=None, lm=HOSTED, admitted=FORCED_LM),
}


async def decide(case: Case) -> tuple[RouteDecision, ScriptedPredictors | None]:
    """Route a case; return the decision, and the LM to see what it was asked."""
    predictors = ScriptedPredictors(case.answer) if case.lm else None
    route = Route(catalog=CATALOG, predictors=predictors, lm=case.lm)
    reading = understood(case.best, case.oos, caller_decides=case.caller_decides)
    decision = await route(uuid4(), admitted(**case.admitted), reading, case.router, Deadline.after(case.seconds))
    return decision, predictors


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_the_right_rung_decides(case: Case) -> None:
    """Rules, caller, student, LM, safe default: in this order, as far as the policy wants, with a warning for each shortfall."""
    decision, predictors = await decide(case)

    assert (decision.action, decision.rung, decision.primary_agent) == (case.action, case.rung, case.agent)
    assert tuple(w.code for w in decision.warnings) == case.warnings
    assert bool(predictors and predictors.questions) is case.asked
    assert (decision.question is not None) is (case.action is C)
    unsure = "low_routing_confidence" in case.warnings and case.best < 1.0  # where nothing is proven, nobody can tell
    assert decision.flow == (("parallel" if unsure else "single") if case.action is D else None)
    assert decision.rationale


async def test_the_intent_of_each_rung_is_its_own() -> None:
    """The decision's intent, confidence and rationale come from whoever decided."""
    by_agent, _ = await decide(CASES["explicit agent"])
    by_lm, _ = await decide(CASES["LM asked below the threshold"])
    by_student, _ = await decide(CASES["student is sure"])
    by_caller, _ = await decide(CASES["trusted caller"])
    by_default, _ = await decide(CASES["no router"])

    assert (by_agent.intent, by_agent.confidence) == ("drift_check", 1.0)
    assert (by_lm.intent, by_lm.confidence, by_lm.rationale) == ("gap_analysis", 0.8, "It asks for a gap.")
    assert (by_student.intent, by_student.confidence) == ("causal_impact", 0.95)
    assert (by_caller.intent, by_caller.confidence) == ("prediction", 1.0)
    assert (by_default.intent, by_default.confidence) == ("explanation", 0.0)


async def test_an_explicit_agent_without_an_intent_of_its_own_gets_the_fallback_intent() -> None:
    """A dispatch needs an intent that the agent can read."""
    decision, _ = await decide(CASES["explicit agent that is primary for no intent"])

    assert decision.intent == CATALOG.fallback_intent


async def test_supporting_agents_are_the_tables_and_the_lms_are_its_own() -> None:
    """Secondary agents never repeat the primary one."""
    by_student, _ = await decide(CASES["student is sure"])
    by_lm, _ = await decide(CASES["LM asked below the threshold"])
    echo, _ = await decide(Case(D, Rung.LM, best=0.3, lm=HOSTED, answer=VERDICT.model_copy(update={"secondary_agents": ("gap_analyzer",)})))

    assert by_student.secondary_agents == CATALOG.intent["causal_impact"].supporting_agents
    assert by_lm.secondary_agents == ("causal_impact",)
    assert echo.secondary_agents == ()


async def test_the_lm_is_asked_with_the_shortlist_and_the_examples() -> None:
    """The question has exactly the policy's shortlist, best first, and what the LM needs besides."""
    _, predictors = await decide(Case(D, Rung.LM, best=0.5, lm=HOSTED, router=a_router(shortlist=3)))

    assert predictors is not None
    question = predictors.questions[0]
    assert [o.intent for o in question.options] == ["causal_impact", "gap_analysis", INTENTS[2]]
    assert [o.name for o in question.options] == [CATALOG.intent[o.intent].primary_agent for o in question.options]
    assert [(e.text, e.intent, e.agent) for e in question.examples] == [("what is the gap", "gap_analysis", "gap_analyzer")]
    assert (question.query, question.history[0].content, question.entities[0].value) == ("where is the gap", "earlier", "Kisqali")
    assert (question.router_version, question.programs) == ("7", {"intent": {"demos": []}})


async def test_where_the_student_has_drifted_the_lm_chooses_among_all() -> None:
    """What its requests want now may be far down the student's list; the region of another intent is asked about as ever."""
    asked = []
    for given_back in ("causal_impact", "gap_analysis"):
        router = a_router(shortlist=3)
        router = replace(router, policy=router.policy.model_copy(update={"given_back": frozenset({given_back})}))
        _, predictors = await decide(Case(D, Rung.LM, best=0.5, lm=HOSTED, router=router))
        assert predictors is not None
        asked.append(len(predictors.questions[0].options))

    assert asked == [len({CATALOG.intent[i].primary_agent for i in INTENTS}), 3]


async def test_the_lm_gets_what_is_left_of_the_deadline_less_a_reserve() -> None:
    """Time for what comes after the LM is kept back."""
    timeouts: list[float] = []

    class Timed(ScriptedPredictors):
        async def route(self, question: Any, *, timeout: float) -> LMVerdict | LMFailure:
            timeouts.append(timeout)
            return await super().route(question, timeout=timeout)

    route = Route(catalog=CATALOG, predictors=Timed(VERDICT), lm=HOSTED)
    await route(uuid4(), admitted(), understood(0.3), a_router(), Deadline.after(1.0))

    assert 0.8 - LM_RESERVE < timeouts[0] <= 1.0 - LM_RESERVE


async def test_an_lm_without_a_rationale_gets_a_plain_one() -> None:
    """A decision always says why."""
    decision, _ = await decide(Case(D, Rung.LM, best=0.3, lm=HOSTED, answer=VERDICT.model_copy(update={"rationale": ""})))

    assert decision.rationale == "The LM chose gap_analyzer."


async def test_a_clarifying_question_names_the_likely_wishes() -> None:
    """The three best intents, in words."""
    decision, _ = await decide(CASES["student unsure, no LM"])

    wishes = [CATALOG.intent[i].wish for i in ("causal_impact", "gap_analysis", INTENTS[2])]
    assert decision.question == f"Do you want to {wishes[0]}; {wishes[1]}; or {wishes[2]}?"


async def test_an_empty_text_is_answered_with_what_there_is() -> None:
    """Every wish of the catalogue is offered."""
    decision, _ = await decide(CASES["empty"])

    assert decision.question is not None
    assert all(intent.wish in decision.question for intent in CATALOG.intents)


async def test_what_triage_warned_of_stays_in_front() -> None:
    """Warnings are passed on in the order in which they arose."""
    notice = Notice(code="confidence_clamped", message="…")

    decision, _ = await decide(Case(D, Rung.STUDENT, best=0.7, admitted={"warnings": (notice,)}))

    assert [w.code for w in decision.warnings] == ["confidence_clamped", "low_routing_confidence"]


async def test_the_decision_records_what_it_rests_on() -> None:
    """Candidates, entities, score, version and policy are kept, so that it can be made again."""
    decision, _ = await decide(CASES["student is sure"])
    without, _ = await decide(CASES["no router"])

    reading = understood()
    assert (decision.candidates, decision.oos_score, decision.entities) == (reading.candidates, reading.oos_score, reading.entities)
    assert (decision.router_version, decision.policy) == ("7", "selective-risk")
    assert (without.router_version, without.policy) == ("none", "rules")


@pytest.mark.parametrize("router", [None, a_router()], ids=["no router", "router"])
def test_after_a_failure_the_default_agent_answers(router: Router | None) -> None:
    """The contract's ROUTING_FAILED: explainer, with a warning, keeping what triage found."""
    notice = Notice(code="unknown_intent", message="…")
    route = Route(catalog=CATALOG, predictors=None, lm=None)

    decision = route.after_failure(uuid4(), admitted(warnings=(notice,)), router)

    assert (decision.action, decision.rung, decision.primary_agent) == (D, Rung.SAFE_DEFAULT, CATALOG.default_agent)
    assert [w.code for w in decision.warnings] == ["unknown_intent", "routing_failed"]
    assert [e.value for e in decision.entities] == ["Kisqali"]


names = st.sampled_from([*CATALOG.agent, *INTENTS, "causal_impact", "gap_analysis", "gap_analyzer", "", "nobody", "explainer; DROP"])
verdicts = st.builds(
    LMVerdict,
    intent=names,
    sub_intent=st.text(max_size=5),
    primary_agent=names,
    secondary_agents=st.lists(names, max_size=3).map(tuple),
    confidence=st.floats(0.0, 1.0),
    rationale=st.text(max_size=10),
)
cases = st.builds(
    Case,
    action=st.just(D),
    rung=st.just(Rung.LM),
    best=st.floats(1.0 / len(INTENTS), 1.0),
    oos=st.floats(0.0, 1.0),
    caller_decides=st.booleans(),
    lm=st.sampled_from([None, HOSTED, LOCAL]),
    answer=verdicts | st.builds(LMFailure, reason=st.sampled_from(["timeout", "error"]), detail=st.text(max_size=5)),
    router=st.none() | st.builds(a_router, act_above=st.floats(0.0, 1.01), refuse_above=st.floats(0.0, 1.0), shortlist=st.integers(2, 12)),
    admitted=st.fixed_dictionaries(
        {},
        optional={
            "social": st.booleans(),
            "empty": st.booleans(),
            "explicit_agent": st.sampled_from([*CATALOG.agent]),
            "caller_intent": st.sampled_from(INTENTS),
            "unknown_intent": st.booleans(),
            "preferences": st.sampled_from([Preferences(), *(d["preferences"] for d in (FORCED_LM, FORCED_STUDENT))]),
        },
    ),
    seconds=st.sampled_from([0.0, 2.0]),
)


@given(case=cases)
async def test_routing_is_total_deterministic_and_keeps_to_the_catalogue(case: Case) -> None:
    """Whatever is read and whatever the LM says: one answer, the same again, and an agent that was on offer."""
    decision, _ = await decide(case)
    again, _ = await decide(case)

    own = {"decision_id", "query_id"}
    assert decision.model_dump(exclude=own) == again.model_dump(exclude=own)
    assert (decision.primary_agent in CATALOG.agent) if decision.action is D else (decision.primary_agent is None)
    assert set(decision.secondary_agents) <= set(CATALOG.agent) - {decision.primary_agent}
    assert decision.intent is None or decision.intent in CATALOG.intent
    assert RouteDecision.model_validate_json(decision.model_dump_json()) == decision


@given(verdict=verdicts, best=st.floats(1.0 / len(INTENTS), 1.0), shortlist=st.integers(2, 12))
async def test_whatever_the_lm_answers_the_agents_are_among_its_options(verdict: LMVerdict, best: float, shortlist: int) -> None:
    """A verdict is taken as it is when it keeps to the options, and not at all when it does not."""
    case = Case(D, Rung.LM, best=best, lm=HOSTED, answer=verdict, admitted=FORCED_LM, router=a_router(shortlist=shortlist))

    decision, predictors = await decide(case)

    assert predictors is not None
    options = predictors.questions[0].options
    agents, intents = {o.name for o in options}, {o.intent for o in options}
    fits = verdict.intent in intents and {verdict.primary_agent, *verdict.secondary_agents} <= agents
    assert decision.rung is (Rung.LM if fits else Rung.STUDENT)
    assert ("lm_invalid_output" in {w.code for w in decision.warnings}) is not fits
    if fits:
        assert (decision.intent, decision.primary_agent) == (verdict.intent, verdict.primary_agent)
