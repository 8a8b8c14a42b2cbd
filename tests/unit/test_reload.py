"""Following the champion: the last good version at once, then what the registry names; whatever goes wrong, the service goes on."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from service import reload
from service.catalog.loader import load_catalog
from service.errors import ConfigurationError
from service.ports import Noted, NotedCandidate, RouterTried
from service.programs import Programs, Router, Stage
from service.reload import Follower, check_labels
from service.routing.policy import Policy
from tests.fakes import Watcher

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


Loaded = Router | Exception | None


class Source:
    """A `ProgramSource` by script: what the registry names at each look, and what each version loads as."""

    def __init__(
        self, last_good: Router | Exception | None, *looks: Noted, versions: Mapping[str, Router | Exception] | None = None
    ) -> None:
        self.last_good = last_good
        self.looks = list(looks)
        self.versions = {"1": a_router("1"), "2": a_router("2"), **(versions or {})}
        self.named = Noted()
        self.back: frozenset[str] = frozenset()
        self.candidates: list[NotedCandidate | None] = [None]
        self.kept: list[str] = []
        self.loads = 0

    def load_last_good(self) -> Router | None:
        """Give the scripted version."""
        return _give(self.last_good)

    def noted(self) -> Noted:
        """Give the next look, the last one again and again."""
        self.named = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return self.named

    def load_noted(self) -> Router | None:
        """Give what the named version loads as."""
        self.loads += 1
        return _give(self.versions[self.named.version or ""])

    def noted_candidate(self) -> NotedCandidate | None:
        """Give the next candidate, the last one again and again."""
        return self.candidates.pop(0) if len(self.candidates) > 1 else self.candidates[0]

    def load_candidate(self) -> Router | None:
        """Give what version 2 loads as."""
        self.loads += 1
        return _give(self.versions["2"])

    def given_back(self, version: str) -> frozenset[str]:
        """Give what a version's student was seen to have given back."""
        return self.back

    def keep(self, router: Router) -> None:
        """Write down what serves."""
        self.kept.append(router.version)


def _give(answer: Loaded) -> Router | None:
    if isinstance(answer, Exception):
        raise answer
    return answer


def names(version: str) -> Noted:
    """Return a look at a registry that names a version."""
    return Noted(version, asked=True)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(reload, "LOAD_SECONDS", 0.2)


async def follow(source: Source, until: Callable[[Follower], bool], events: Watcher | None = None) -> tuple[Programs, Follower, Watcher]:
    """Follow until something holds, at most five seconds."""
    programs, events = Programs(), events or Watcher()
    follower = Follower(source, programs, CATALOG, events)
    task = asyncio.create_task(follower.follow())
    async with asyncio.timeout(5.0):
        while not until(follower):
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return programs, follower, events


def tried(events: Watcher) -> list[RouterTried]:
    """Return what was tried."""
    return [event for event in events.events if isinstance(event, RouterTried)]


async def test_the_last_good_version_serves_before_the_registry_is_asked() -> None:
    """A start needs no MLflow."""
    source = Source(a_router("1"), Noted())

    programs, _, _ = await follow(source, lambda it: it.tried.is_set())

    assert (source.loads, programs.current is not None and programs.current.version) == (0, "1")


async def test_what_the_registry_names_replaces_the_last_good_version() -> None:
    """A promotion that this machine did not make counts, and the new version is the last good one from then on."""
    source = Source(a_router("1"), names("1"), names("2"))

    programs, _, events = await follow(source, lambda _: "2" in source.kept)

    assert programs.current is not None
    assert programs.current.version == "2"
    assert tried(events) == [RouterTried("1", served=True), RouterTried("2", served=True)]


async def test_what_the_student_has_given_back_is_the_lms_from_then_on_and_can_be_taken_again() -> None:
    """The version stays; each request that begins later has the new policy."""
    source = Source(a_router("1"), names("1"))
    source.back = frozenset({"gap_analysis"})
    given = False

    def until(follower: Follower) -> bool:
        nonlocal given
        router = follower.programs.current
        if router is not None and router.policy.given_back == {"gap_analysis"}:
            given, source.back = True, frozenset()
        return given and router is not None and router.policy.given_back == frozenset()

    programs, _, events = await follow(source, until)

    assert programs.current is not None
    assert programs.current.version == "1"
    assert tried(events) == [RouterTried("1", served=True)]


async def test_a_version_is_told_the_catalogues_intents() -> None:
    """So that it can find those that it was not fitted on."""
    programs, _, _ = await follow(Source(a_router("1"), Noted()), lambda it: it.tried.is_set())

    assert programs.current is not None
    student = programs.current.student
    assert isinstance(student, Labelled)
    assert set(student.told) == set(load_catalog().intent)


@pytest.mark.parametrize(
    "fault", [None, ConfigurationError("not whole"), OSError("disk"), RuntimeError("anything")], ids=["none", "damaged", "disk", "bug"]
)
async def test_without_a_last_good_version_the_registrys_is_served_as_soon_as_there_is_one(fault: Exception | None) -> None:
    """Neither a damaged note nor a registry that is away ends the search, and it is known when it was asked first."""
    source = Source(fault, Noted(), Noted(problem="away", asked=True), Noted(problem="away", asked=True), names("2"))

    programs, follower, _ = await follow(source, lambda _: "2" in source.kept)

    assert follower.tried.is_set()
    assert programs.current is not None


@pytest.mark.parametrize(
    "fault", [ConfigurationError("altered"), OSError("disk"), RuntimeError("anything")], ids=["damaged", "disk", "bug"]
)
async def test_a_version_that_cannot_be_served_changes_nothing(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried once, counted and named in the log; the next good one is taken."""
    source = Source(a_router("1"), names("1"), names("bad"), names("bad"), names("bad"), names("2"), versions={"bad": fault})

    programs, _, events = await follow(source, lambda _: "2" in source.kept)

    assert tried(events) == [RouterTried("1", served=True), RouterTried(None, served=False), RouterTried("2", served=True)]
    assert caplog.text.count(str(fault)) == 1
    assert "bad" not in source.kept
    assert programs.current is not None


async def test_a_version_that_could_not_be_served_for_a_while_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was away may be back; without it a service that has no router would never get one."""
    monkeypatch.setattr(reload, "RETRY_SECONDS", 0.05)
    source = Source(None, names("2"), versions={"2": OSError("away")})

    def mended(_: Follower) -> bool:
        if source.loads >= 2:
            source.versions["2"] = a_router("2")
        return "2" in source.kept

    programs, _, events = await follow(source, mended)

    assert tried(events)[:2] == [RouterTried(None, served=False)] * 2
    assert programs.current is not None


async def test_the_version_that_serves_is_not_loaded_again() -> None:
    """A start with a last good version that is the champion still loads it once."""
    source = Source(a_router("1"), names("1"))

    await follow(source, lambda it: it.tried.is_set())

    assert source.loads == 0


async def test_a_version_that_hangs_is_given_up() -> None:
    """The last good one goes on, and later versions are not held up."""
    gate = threading.Event()

    class Hanging(Source):
        def load_noted(self) -> Router | None:
            if self.named.version == "slow":
                gate.wait(10.0)
            return super().load_noted()

    source = Hanging(a_router("1"), names("1"), names("slow"), names("2"), versions={"slow": a_router("slow")})
    try:
        programs, _, events = await follow(source, lambda _: "2" in source.kept)
    finally:
        gate.set()

    assert RouterTried(None, served=False) in tried(events)
    assert programs.current is not None
    assert programs.current.version == "2"


async def test_a_champion_of_another_catalogue_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    """Its labels are named, with the command that helps."""
    foreign = a_router("1", "invoices", "refunds")

    programs, _, _ = await follow(Source(foreign, names("1"), versions={"1": foreign}), lambda it: it.tried.is_set())

    assert programs.current is None
    assert "invoices, refunds" in caplog.text
    assert "optimize --bootstrap --seed-set FOLDER --promote" in caplog.text


def test_labels_that_the_catalogue_knows_pass() -> None:
    """Fewer are fine: an intent may have no examples yet."""
    check_labels("1", ["causal_impact", "explanation"], CATALOG)
    check_labels("2", ["causal_impact"], CATALOG)


SHADOW, CANARY = NotedCandidate("2", Stage.SHADOW, 0.0), NotedCandidate("2", Stage.CANARY, 0.5)


async def test_a_challenger_is_tried_beside_the_champion_and_goes_when_the_registry_says_so() -> None:
    """From shadow to canary it is not loaded again; the champion serves all the while."""
    source, seen = Source(a_router("1"), names("1")), []
    source.candidates = [None, SHADOW, SHADOW, CANARY, CANARY, None]

    def note(follower: Follower) -> bool:
        candidate = follower.programs.candidate
        seen.append((candidate.stage, candidate.share) if candidate is not None else None)
        return len(source.candidates) == 1 and candidate is None

    programs, _, _ = await follow(source, note)

    assert [one for i, one in enumerate(seen) if i == 0 or one != seen[i - 1]] == [None, (Stage.SHADOW, 0.0), (Stage.CANARY, 0.5), None]
    assert source.loads == 1
    assert programs.current is not None
    assert programs.current.version == "1"


async def test_a_challenger_that_cannot_be_loaded_is_not_tried() -> None:
    """The champion serves, and the metric hears of it."""
    source = Source(a_router("1"), names("1"), versions={"2": ConfigurationError("not whole")})
    source.candidates = [SHADOW]

    events = Watcher()

    programs, *_ = await follow(source, lambda _: len(tried(events)) > 1, events)

    assert (programs.candidate, tried(events)) == (None, [RouterTried("1", served=True), RouterTried(None, served=False)])


async def test_a_challenger_that_is_promoted_is_champion_and_tried_no_longer() -> None:
    """Whatever the note of the candidate still says."""
    source = Source(a_router("1"), names("1"), names("1"), names("1"), names("2"))
    source.candidates = [CANARY]

    programs, _, _ = await follow(source, lambda _: "2" in source.kept)

    assert programs.current is not None
    assert (programs.current.version, programs.candidate) == ("2", None)
