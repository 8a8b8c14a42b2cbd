"""The audit: what the student answers alone is counted, a share is put to the LM afterwards, and nobody waits for it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, datetime

from service.audit import AT_ONCE, Audit
from service.contracts.decision import Action, RouteDecision, Rung
from service.contracts.lm import LMFailure, LMQuestion, LMVerdict
from service.contracts.notice import Notice
from service.contracts.query import OrchestratorInput, Preferences
from service.ports import Audited
from service.programs import Programs
from service.routing.regions import RegionTally
from service.stages.routing import Route
from service.stages.trace import Trace
from service.tallies import store_tallies
from tests.fakes import ScriptedPredictors, Watcher
from tests.unit.turns import CATALOG, a_decision, a_request, a_router, admitted, understood

LM = "openai/some"


def a_verdict(agent: str, usd: float | None = 0.001) -> LMVerdict:
    """Return an LM's choice of an agent."""
    intent = next(one.name for one in CATALOG.intents if one.primary_agent == agent)
    return LMVerdict(intent=intent, sub_intent="", primary_agent=agent, secondary_agents=(), confidence=0.8, rationale="", usd=usd)


def by_student(**fields: object) -> RouteDecision:
    """Return a decision of the student that the router below has made."""
    given = {"rung": Rung.STUDENT, "router_version": "7", "intent": "causal_impact", "primary_agent": "causal_impact"}
    return a_decision("causal_impact").model_copy(update={**given, **fields})


async def audit(
    *decisions: RouteDecision,
    verdict: LMVerdict | LMFailure | None = None,
    share: float = 1.0,
    lm: str | None = LM,
    request: OrchestratorInput | None = None,
    router_version: str = "7",
) -> tuple[dict[str, RegionTally], ScriptedPredictors, Watcher]:
    """Count decisions one after the other; return the counts by intent."""
    predictors, watcher = ScriptedPredictors(verdict or a_verdict("causal_impact")), Watcher()
    routing = Route(catalog=CATALOG, predictors=predictors if lm else None, lm=lm)
    router = a_router(trusted_lms=()) if router_version == "7" else None
    audit = Audit(programs=Programs(router), routing=routing, share=share, observer=watcher)
    for decision in decisions:
        trace = Trace(Watcher())
        trace.admitted, trace.understanding = admitted(), understood()
        audit.read(request or a_request("why did it fall"), trace, decision)
        while audit.reading:
            await asyncio.sleep(0.001)
    return {intent: tally for (_, intent, _), tally in audit.take().items()}, predictors, watcher


async def test_agreement_and_difference_are_counted_with_what_they_cost() -> None:
    """By the agent, which is what a router is for."""
    same, asked, events = await audit(by_student())
    other, _, _ = await audit(by_student(), verdict=a_verdict("gap_analyzer", usd=None))

    one, two = same["causal_impact"], other["causal_impact"]
    assert (one.local, one.audited, one.agreed, one.usd, one.priced) == (1, 1, 1, 0.001, 1)
    assert (two.local, two.audited, two.agreed, two.usd, two.priced) == (1, 1, 0, 0.0, 0)
    assert events.events == [Audited("causal_impact", "agreed", 0.001)]
    assert asked.questions[0].options[0].intent == "causal_impact"


async def test_an_lm_that_fails_says_nothing() -> None:
    """It is counted apart."""
    tallies, _, events = await audit(by_student(), verdict=LMFailure(reason="timeout", detail="late"))

    assert (tallies["causal_impact"].audited, tallies["causal_impact"].failed) == (0, 1)
    assert events.events == [Audited("causal_impact", "failed", None)]


async def test_an_lm_that_breaks_is_one_that_fails() -> None:
    """A bug in a library is no evidence either."""

    class Broken(ScriptedPredictors):
        async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
            raise RuntimeError("a bug")

    watcher = Watcher()
    routing = Route(catalog=CATALOG, predictors=Broken(a_verdict("explainer")), lm=LM)
    broken = Audit(programs=Programs(a_router()), routing=routing, share=1.0, observer=watcher)
    trace = Trace(Watcher())
    trace.admitted, trace.understanding = admitted(), understood()

    broken.read(a_request("why"), trace, by_student())
    await asyncio.gather(*broken.reading)

    assert watcher.events == [Audited("causal_impact", "failed", None)]


async def test_what_the_lm_decided_is_counted_and_not_asked_again() -> None:
    """It tells the share that is answered without it."""
    tallies, asked, _ = await audit(by_student(rung=Rung.LM), by_student())

    assert (tallies["causal_impact"].asked, tallies["causal_impact"].local) == (1, 1)
    assert len(asked.questions) == 1


async def test_an_answer_that_the_lm_could_not_give_is_no_region_of_the_students() -> None:
    """It was asked, and failed: that the student then answered says nothing of where it may answer alone."""
    late = Notice(code="lm_timeout", message="The LM was late.")

    tallies, asked, _ = await audit(by_student(confidence=0.6, warnings=(late,)))

    assert (tallies, asked.questions) == ({}, [])


async def test_what_the_lm_decided_counts_where_the_student_read_it() -> None:
    """A region is the requests that read so, whoever they went to."""
    tallies, _, _ = await audit(by_student(rung=Rung.LM, intent="gap_analysis", primary_agent="gap_analyzer"))

    assert {intent: tally.asked for intent, tally in tallies.items()} == {"causal_impact": 1}


async def test_nothing_else_is_counted() -> None:
    """No other rung, no question to the user, no version that has gone, no LM that may not decide, no wish of the caller."""
    wish = a_request("why").model_copy(update={"preferences": Preferences(rung="student")})

    assert (await audit(by_student(rung=Rung.CALLER), by_student(rung=Rung.SAFE_DEFAULT)))[0] == {}
    assert (await audit(by_student(action=Action.CLARIFY), by_student(intent=None)))[0] == {}
    assert (await audit(by_student(router_version="6")))[0] == {}
    assert (await audit(by_student(), router_version="none"))[0] == {}
    assert (await audit(by_student(), lm=None))[0] == {}
    assert (await audit(by_student(), lm="local"))[0] == {}
    assert (await audit(by_student(), request=wish))[0] == {}


async def test_a_share_is_read_and_never_what_was_explored() -> None:
    """All are counted."""
    decisions = [by_student(query_id=a_request("why").parsed_query.query_id) for _ in range(400)]
    tallies, asked, _ = await audit(*decisions, share=0.25)
    explored, not_asked, _ = await audit(by_student(propensity=0.05))

    assert tallies["causal_impact"].local == 400
    assert 60 <= len(asked.questions) <= 140
    assert (explored["causal_impact"].local, not_asked.questions) == (1, [])


async def test_it_lets_requests_pass_when_it_is_behind() -> None:
    """A slow LM is not asked by many at once."""
    gate = asyncio.Event()

    class Slow(ScriptedPredictors):
        async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
            await gate.wait()
            return await super().route(question, timeout=timeout)

    slow = Slow(a_verdict("causal_impact"))
    routing = Route(catalog=CATALOG, predictors=slow, lm=LM)
    behind = Audit(programs=Programs(a_router()), routing=routing, share=1.0, observer=Watcher())
    trace = Trace(Watcher())
    trace.admitted, trace.understanding = admitted(), understood()
    for _ in range(10):
        behind.read(a_request("why"), trace, by_student())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*behind.reading)

    assert len(slow.questions) == AT_ONCE
    assert sum(tally.local for tally in behind.take().values()) == 10


async def test_counts_that_cannot_be_stored_are_stored_later() -> None:
    """Nothing is lost but by the end of the process."""
    kept = Audit(programs=Programs(), routing=Route(catalog=CATALOG, predictors=None, lm=None), share=0.0, observer=Watcher())
    key = ("7", "gap_analysis", datetime.now(UTC).date())
    kept.put_back(key, RegionTally(local=3))
    stored: list[dict[tuple[str, str, date], RegionTally]] = []
    broken = [OSError("disk")]

    def add(tallies: Mapping[tuple[str, str, date], RegionTally]) -> None:
        if broken:
            raise broken.pop()
        stored.append(dict(tallies))

    task = asyncio.create_task(store_tallies(kept, add, 0.01))
    async with asyncio.timeout(5.0):
        while not stored:
            await asyncio.sleep(0.01)
    task.cancel()

    assert stored == [{key: RegionTally(local=3)}]
