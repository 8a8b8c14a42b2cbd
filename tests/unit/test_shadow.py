"""The shadow: it reads after the answer, counts what it would do otherwise, and never gets in the way."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from service.contracts.decision import RouteDecision
from service.ports import Observer, Shadowed
from service.programs import Candidate, Programs, Router, Stage, Tally
from service.routing.history import History
from service.shadow import AT_ONCE, Shadow
from service.stages.intent import ReadIntent, Understanding
from service.stages.routing import Route
from service.stages.trace import Trace
from service.stages.triage import Admitted
from service.tallies import store_tallies
from tests.fakes import Watcher
from tests.unit.turns import CATALOG, a_decision, a_request, admitted

ROUTE = Route(catalog=CATALOG, predictors=None, lm=None)
QUESTION = "which regions lag their target"


async def read(shadow: Shadow, decision: RouteDecision, *, text: str = QUESTION, times: int = 1) -> dict[str, Tally]:
    """Have a request read and wait until it is."""
    request, trace = a_request(text), Trace(Watcher())
    trace.admitted = admitted(text=text)
    for _ in range(times):
        shadow.read(request, trace, decision)
    for _ in range(1_000):
        if not shadow.reading:
            break
        await asyncio.sleep(0.01)
    return shadow.take()


def shadowing(router: Router, stage: Stage = Stage.SHADOW, intent: ReadIntent | None = None, observer: Observer | None = None) -> Shadow:
    """Return a shadow with a candidate."""
    programs = Programs(router)
    programs.try_out(Candidate(replace(router, version="2"), stage, 0.5))
    return Shadow(programs=programs, intent=intent or ReadIntent(History()), routing=ROUTE, observer=observer or Watcher())


async def test_it_counts_where_it_would_do_otherwise(router: Router) -> None:
    """Another agent, or another action; the same is no difference."""
    watcher = Watcher()
    shadow = shadowing(router, observer=watcher)

    same = await read(shadow, a_decision("gap_analyzer"))
    other = await read(shadow, a_decision("explainer"))

    assert (same, other) == ({"2": Tally(1, 0, 0)}, {"2": Tally(1, 1, 0)})
    assert [e for e in watcher.events if isinstance(e, Shadowed)] == [Shadowed("agreed"), Shadowed("differed")]


async def test_what_breaks_in_it_is_counted_and_stays_there(router: Router) -> None:
    """As a failure of the candidate."""

    class Broken(ReadIntent):
        def __call__(self, admitted: Admitted, router: Router | None) -> Understanding:
            raise RuntimeError("a bug")

    watcher = Watcher()

    assert await read(shadowing(router, intent=Broken(History()), observer=watcher), a_decision()) == {"2": Tally(1, 0, 1)}
    assert Shadowed("failed") in watcher.events


async def test_a_canary_reads_nothing_in_the_shadow(router: Router) -> None:
    """It answers its own share."""
    assert await read(shadowing(router, Stage.CANARY), a_decision()) == {}


async def test_it_lets_requests_pass_when_it_is_behind(router: Router) -> None:
    """At most a few are read at a time."""
    tallies = await read(shadowing(router), a_decision("gap_analyzer"), times=AT_ONCE + 10)

    assert tallies["2"].requests == AT_ONCE


async def test_counts_that_cannot_be_stored_are_stored_later(router: Router) -> None:
    """Nothing is lost but by the end of the process."""
    shadow, stored, broken = shadowing(router), [], [OSError("disk")]

    def add(tallies: Mapping[str, Tally]) -> None:
        if broken:
            raise broken.pop()
        stored.append(dict(tallies))

    await read(shadow, a_decision("gap_analyzer"))
    shadow.put_back("2", Tally(3, 1, 0))
    task = asyncio.create_task(store_tallies(shadow, add, 0.01))
    for _ in range(500):
        if stored:
            break
        await asyncio.sleep(0.01)
    task.cancel()

    assert stored == [{"2": Tally(3, 1, 0)}]
