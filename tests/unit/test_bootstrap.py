"""Following the champion: the last good version at once, then the registry's; whatever goes wrong, the service goes on and says why."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from service import bootstrap
from service.bootstrap import check_labels
from service.catalog.loader import load_catalog
from service.errors import ConfigurationError
from service.programs import Programs, Router
from service.routing.policy import Policy

CATALOG = load_catalog()
POLICY = Policy(refuse_above=0.5, act_above=0.9, clarify_below=0.5, accepted_in_scope=0.95, risk_target=0.02, coverage=0.8)


class Labelled:
    """A student that is only asked for its labels, and told those of the catalogue."""

    def __init__(self, *labels: str) -> None:
        self.practised = labels
        self.told: tuple[str, ...] = ()

    def knowing(self, words: Mapping[str, Sequence[str]]) -> "Labelled":
        """Keep what is told."""
        self.told = tuple(words)
        return self


def a_router(version: str, *labels: str) -> Router:
    """Return a router for the catalogue's intents, or for other labels."""
    return Router(version, Labelled(*(labels or ("causal_impact", "explanation"))), POLICY)  # type: ignore[arg-type]  # labels are enough


class Source:
    """A `ProgramSource` by script; each look at the registry takes the next answer, the last one again and again."""

    def __init__(self, last_good: Router | Exception | None, *champions: Router | Exception | None) -> None:
        self.last_good = last_good
        self.champions = list(champions)
        self.looks = 0

    def load_last_good(self) -> Router | None:
        """Give the scripted version."""
        return _give(self.last_good)

    def load_champion(self) -> Router | None:
        """Give the next scripted version."""
        self.looks += 1
        return _give(self.champions.pop(0) if len(self.champions) > 1 else self.champions[0])


def _give(answer: Router | Exception | None) -> Router | None:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROUTER_RETRY", 0.01)
    monkeypatch.setattr(bootstrap, "CHAMPION_CHECK", 0.05)


async def follow(source: Source, until: Callable[[Programs, asyncio.Event], bool]) -> tuple[Programs, asyncio.Event]:
    """Follow until something holds, at most five seconds."""
    programs, tried = Programs(), asyncio.Event()
    task = asyncio.create_task(bootstrap._follow_champion(source, programs, CATALOG, tried))
    async with asyncio.timeout(5.0):
        while not until(programs, tried):
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return programs, tried


def serving(version: str) -> Callable[[Programs, asyncio.Event], bool]:
    """Return a check that a version serves."""
    return lambda programs, _: programs.current is not None and programs.current.version == version


async def test_the_last_good_version_serves_before_the_registry_is_asked() -> None:
    """A start needs no MLflow."""
    source = Source(a_router("1"), a_router("1"))

    _, tried = await follow(source, serving("1"))

    assert (source.looks, tried.is_set()) == (0, True)


async def test_the_registrys_champion_replaces_the_last_good_version() -> None:
    """A promotion that this machine did not make counts."""
    programs, _ = await follow(Source(a_router("1"), a_router("2")), serving("2"))

    assert programs.current is not None


async def test_a_version_is_told_the_catalogues_intents() -> None:
    """So that it can find those that it was not fitted on."""
    programs, _ = await follow(Source(a_router("1"), a_router("1")), serving("1"))

    assert programs.current is not None
    student = programs.current.student
    assert isinstance(student, Labelled)
    assert set(student.told) == set(load_catalog().intent)


@pytest.mark.parametrize(
    "fault", [None, ConfigurationError("not whole"), OSError("disk"), RuntimeError("anything")], ids=["none", "damaged", "disk", "bug"]
)
async def test_without_a_last_good_version_the_registry_is_asked_until_it_has_one(fault: Exception | None) -> None:
    """Neither a damaged note nor a registry that fails in any way ends the search, and a first look is reported."""
    source = Source(fault, fault or ConfigurationError("away"), None, a_router("3"))

    _, tried = await follow(source, serving("3"))

    assert (source.looks, tried.is_set()) == (3, True)


async def test_a_champion_of_another_catalogue_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """Its labels are named, with the command that helps."""
    programs, _ = await follow(
        Source(a_router("1", "invoices", "refunds"), a_router("1", "invoices", "refunds")), lambda _, tried: tried.is_set()
    )

    assert programs.current is None
    assert "invoices, refunds" in caplog.text
    assert "optimize --bootstrap --seed-set FOLDER --promote" in caplog.text


def test_labels_that_the_catalogue_knows_pass() -> None:
    """Fewer are fine: an intent may have no examples yet."""
    check_labels(a_router("1"), CATALOG)
    check_labels(replace(a_router("1"), version="2"), CATALOG)
