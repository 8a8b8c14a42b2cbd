"""model_deployer moves aliases as asked, once a dispatch, and changes nothing where it cannot do what is asked."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from service.agents.directory import load_agent, run_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.registry.store import Registry
from service.agents.registry.words import Step, read_request
from service.agents.sample_data import Snapshot
from service.contracts.handoff import HandoffStatus
from tests.golden_checks.model_deployer import check, read_registry
from tests.unit.agents.model_store import add_model, registry, with_id

__all__ = ["registry"]
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow 3.17 under SQLAlchemy 2.1

Tell = Callable[..., Finding]
NAME = "e2i-fabhalta-conversion"


@pytest.fixture
def tell(make_dispatch: Any, data: Snapshot) -> Tell:
    """Ask the deployer, under an id of its own."""

    def ask(query: str, **what: Any) -> Finding:
        return load_agent("model_deployer")(with_id(make_dispatch("model_deployer", context={"raw_query": query}, **what)), data)

    return ask


def aliases_of(registry: Registry, name: str = NAME) -> dict[str, int]:
    """Return a model's aliases."""
    model = registry.model(name)
    assert model is not None
    return {alias: one.number for one in model.versions for alias in one.aliases}


@pytest.mark.parametrize(
    ("query", "after"),
    [
        ("put fabhalta conversion v3 live", {"production": 3, "previous": 1}),
        ("promote the challenger", {"production": 2, "previous": 1}),
        ("make the challenger the champion", {"production": 2, "previous": 1}),
        ("ship v2", {"production": 2, "previous": 1}),
        ("release 2.0.0 please", {"production": 2, "previous": 1}),
        ("serve version three instead of one", {"production": 3, "previous": 1, "staging": 2}),
        ("sandbox -> prod for the fabhalta model", {"production": 2, "previous": 1}),
        ("in front of the reps by Monday, please", {"production": 2, "previous": 1}),
        ("take version 3 to staging", {"production": 1, "staging": 3}),
        ("run candidate 3 in shadow next to the current one", {"production": 1, "staging": 2, "shadow": 3}),
        ("5% of traffic to the new one first, then all of it if quiet", {"production": 1, "staging": 2, "canary": 2}),
        ("hold the rollout where it is", {"production": 1, "staging": 2}),
        ("which version is in production?", {"production": 1, "staging": 2}),
        ("ship v1", {"production": 1, "staging": 2}),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_each_step_moves_the_aliases_that_it_names(tell: Tell, registry: Registry, query: str, after: dict[str, int]) -> None:
    """Version 1 is in production, 2 in staging, 3 waits."""
    add_model(registry, NAME, [0.70, 0.72, 0.74], {"production": 1, "staging": 2})

    finding = tell(query)

    expected = dict(after)
    if "v3" in query:
        expected |= {"staging": 2}
    assert aliases_of(registry) == expected
    assert finding.primary_output["aliases"] == expected


@pytest.mark.parametrize(
    "query", ["roll back", "undo yesterday's release", "put the old model back now", "go back to version 1", "revert to v1"]
)
def test_a_roll_back_swaps_with_the_previous(tell: Tell, registry: Registry, query: str) -> None:
    """What was in production is kept under `previous`, so that the roll back can be undone."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 2, "previous": 1})

    tell(query)

    assert aliases_of(registry) == {"production": 1, "previous": 2}


def test_a_roll_back_can_be_rolled_back(tell: Tell, registry: Registry) -> None:
    """Twice is where it began."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 2, "previous": 1})

    tell("roll back")
    tell("roll back")

    assert aliases_of(registry) == {"production": 2, "previous": 1}


@pytest.mark.parametrize(
    ("query", "retired", "left"),
    [
        ("retire fabhalta conversion v1 and v2", [1, 2], {"staging": 3}),
        ("take the old one offline", [1], {"production": 2, "staging": 3}),
        ("decommission the fabhalta model", [1, 2, 3], {}),
        ("retire v2", [2], {"previous": 1, "staging": 3}),
    ],
    ids=["both", "previous", "all", "production"],
)
def test_retired_versions_lose_their_aliases_and_are_tagged(
    tell: Tell, registry: Registry, query: str, retired: list[int], left: dict[str, int]
) -> None:
    """The artifacts stay; when the one in production goes, a caveat says that nobody is served."""
    add_model(registry, NAME, [0.7, 0.7, 0.7], {"production": 2, "previous": 1, "staging": 3})

    finding = tell(query)

    model = registry.model(NAME)
    assert model is not None
    assert [one.number for one in model.versions if one.tags.get("retired") == "true"] == retired
    assert aliases_of(registry) == left
    assert any("serves nobody now" in caveat for caveat in finding.caveats) == (2 in retired)


@pytest.mark.parametrize(
    "query",
    [
        "serve it behind a REST endpoint",
        "expose the model with autoscaling",
        "switch production over tonight after 10pm",
        "make the challenger live on Sunday night",
        "canary at 5% for northeast users only",
        "promote it for the Midwest",
        "why is the Midwest still on version 1? switch them over",
        "bring the previous version back for Fabhalta only",
        "push it live from Monday on",
        "when QA signs off, promote it",
        "change the cut-off from .6 to .7 and release",
        "un-retire version 1",
        "do something with the model",
        "",
    ],
    ids=lambda query: query[:30],
)
def test_what_cannot_be_done_is_said_and_nothing_else_is_done(tell: Tell, registry: Registry, query: str) -> None:
    """No endpoint, no schedule, no user group: the registry stays as it is."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 1, "staging": 2})
    client: Any = registry._client
    before = read_registry(client)

    with pytest.raises(AgentFailure, match="Nothing was changed") as failure:
        tell(query)

    assert failure.value.error_type == "unsupported_request"
    assert read_registry(client) == before


@pytest.mark.parametrize(
    "query",
    [
        "ship the nba model",
        "put hcp_convert_03 live",
        "take the Leqvio scorer to staging",
        "promote the adherence model",
        "promote the west demand model",
        "ship v7",
        "promote run 8f31aa",
    ],
    ids=lambda query: query[:26],
)
def test_an_unknown_model_or_version_is_refused_with_a_list(tell: Tell, registry: Registry, query: str) -> None:
    """Even where a single model is registered, another name does not mean it."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 1, "staging": 2})

    with pytest.raises(AgentFailure) as failure:
        tell(query)

    assert failure.value.error_type == "unknown_entity"
    assert "1" in str(failure.value)
    assert aliases_of(registry) == {"production": 1, "staging": 2}


def test_an_ambiguous_request_is_refused_with_a_list(tell: Tell, registry: Registry) -> None:
    """Two conversion models fit; the brand, or the full name, decides."""
    for name in (NAME, "e2i-kisqali-conversion"):
        add_model(registry, name, [0.7], {"staging": 1})

    with pytest.raises(AgentFailure, match="2 models fit") as failure:
        tell("put the conversion model live")

    assert all(name in str(failure.value) for name in (NAME, "e2i-kisqali-conversion"))
    tell("put the conversion model live", brand="Kisqali")
    assert aliases_of(registry, "e2i-kisqali-conversion") == {"production": 1}
    tell(f"put {NAME} live")
    assert aliases_of(registry) == {"production": 1}


def test_a_regional_model_is_meant_only_by_its_region(tell: Tell, registry: Registry) -> None:
    """Without 'west' the national one is meant; with it the regional one."""
    add_model(registry, NAME, [0.7], {"staging": 1})
    add_model(registry, f"{NAME}-west", [0.7], {"staging": 1})

    tell("promote the fabhalta conversion model")

    assert (aliases_of(registry), aliases_of(registry, f"{NAME}-west")) == ({"production": 1}, {"staging": 1})
    tell("promote the fabhalta west conversion model")
    assert aliases_of(registry, f"{NAME}-west") == {"production": 1}


@pytest.mark.parametrize(
    ("scores", "said"),
    [([0.75, 0.70], "worse roc_auc"), ([0.75, None], "no recorded evaluation"), ([None, 0.70], "same metric")],
    ids=["worse", "missing", "incomparable"],
)
def test_an_unnamed_version_must_be_as_good_as_the_one_in_production(
    tell: Tell, registry: Registry, scores: list[float | None], said: str
) -> None:
    """It is refused; named by its number it goes live, with a caveat."""
    add_model(registry, NAME, scores, {"production": 1, "staging": 2})

    with pytest.raises(AgentFailure, match=said) as failure:
        tell("promote the challenger")

    assert failure.value.error_type == "insufficient_data"
    assert aliases_of(registry) == {"production": 1, "staging": 2}
    finding = tell("promote v2")
    assert aliases_of(registry) == {"production": 2, "previous": 1}
    assert any("because it was named" in caveat for caveat in finding.caveats)


def test_a_repeated_dispatch_changes_nothing_more(make_dispatch: Any, data: Snapshot, registry: Registry) -> None:
    """A second roll back under the same id would swap back; it does not, and reports the first one's moves."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 2, "previous": 1})
    dispatch_id = uuid4()
    dispatch = with_id(make_dispatch("model_deployer", context={"raw_query": "roll back"}), dispatch_id)

    first, again = (load_agent("model_deployer")(dispatch, data) for _ in range(2))

    assert aliases_of(registry) == {"production": 1, "previous": 2}
    assert first.primary_output["moves"] == again.primary_output["moves"]
    assert any("second time" in caveat for caveat in again.caveats)


@pytest.mark.parametrize(
    ("query", "state", "error_type"),
    [
        ("roll back", {"production": 2}, "missing_data"),
        ("roll back", {}, "missing_data"),
        ("canary for the new one, 10% of traffic", {"staging": 2}, "missing_data"),
        ("start the canary", {"production": 1, "staging": 2}, "missing_data"),
        ("promote the new one", {"production": 2}, "missing_data"),
        ("retire it", {}, "missing_data"),
    ],
    ids=["no-previous", "no-production", "canary-without-production", "canary-without-share", "nothing-newer", "nothing-in-use"],
)
def test_a_step_without_its_conditions_is_refused(
    tell: Tell, registry: Registry, query: str, state: dict[str, int], error_type: str
) -> None:
    """The message says what is missing."""
    add_model(registry, NAME, [0.70, 0.72], state)

    with pytest.raises(AgentFailure, match="Nothing was changed") as failure:
        tell(query)

    assert failure.value.error_type == error_type
    assert aliases_of(registry) == state


def test_a_full_canary_is_a_promotion(tell: Tell, registry: Registry) -> None:
    """'Go to 100 %' takes the version under the alias canary into production."""
    add_model(registry, NAME, [0.70, 0.72, 0.74], {"production": 1, "canary": 2})

    tell("thanks for the canary, now go to 100 % of traffic")

    assert aliases_of(registry) == {"production": 2, "previous": 1}


def test_a_run_names_a_version(tell: Tell, registry: Registry) -> None:
    """The beginning of a run id is enough."""
    model = add_model(registry, NAME, [0.70, 0.72])
    run = next(
        model.versions[1].run_id[:length]
        for length in range(3, 33)
        if any(letter.isdigit() for letter in model.versions[1].run_id[:length])
    )

    tell(f"promote run {run}")

    assert aliases_of(registry) == {"production": 2}


def test_an_empty_registry_is_said(tell: Tell, registry: Registry) -> None:
    """There is nothing to deploy yet."""
    with pytest.raises(AgentFailure, match="registered yet") as failure:
        tell("ship the conversion model")

    assert failure.value.error_type == "missing_data"


def test_confidence_falls_with_what_was_inferred(tell: Tell, registry: Registry) -> None:
    """Model and version named: 1; neither: two thirds."""
    add_model(registry, NAME, [0.70, 0.72], {"production": 1, "staging": 2})

    assert tell("shadow for fabhalta conversion v2").confidence == 1.0
    assert tell("promote the challenger").confidence == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("query", "step", "versions"),
    [
        ("Take version 2.1 offline and restore 2.0", Step.ROLL_BACK, ("2.0",)),
        ("replace v1 with v2 in production", Step.PROMOTE, ("2",)),
        ("the review board nodded it through on Tuesday, ship it", Step.PROMOTE, ()),
        ("Freeze releases but ship the Fabhalta one", Step.PROMOTE, ()),
        ("don't deploy it yet", Step.HOLD, ()),
        ("take the model off the live environment", Step.RETIRE, ()),
        ("stop serving v3", Step.RETIRE, ("3",)),
        ("un plus un, canary 25 percent of traffic", Step.CANARY, ()),
        ("dark launch candidate 12", Step.SHADOW, ("12",)),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_words_become_steps(query: str, step: Step, versions: tuple[str, ...]) -> None:
    """Precedence, negation, and the version that is the goal."""
    request = read_request(query)

    assert (request.step, request.versions) == (step, versions)


@pytest.mark.parametrize(
    "query",
    ["promote fabhalta conversion v2", "ship the nba model", "roll back", "canary at 5% for northeast users only", "take v3 to staging"],
)
def test_the_golden_check_agrees(
    make_dispatch: Any, data: Snapshot, registry: Registry, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """What the handoff tells is what the registry shows, through JSON."""
    monkeypatch.setattr("service.agents.sample_data.load_snapshot", lambda: data)
    add_model(registry, NAME, [0.70, 0.72, 0.74], {"production": 2, "previous": 1})
    client: Any = registry._client
    before = read_registry(client)

    handoff = run_agent("model_deployer", with_id(make_dispatch("model_deployer", context={"raw_query": query})))

    assert handoff.execution.status in {HandoffStatus.SUCCESS, HandoffStatus.FAILED}
    check(query, json.loads(handoff.model_dump_json()), data, {"before": before, "after": read_registry(client)})
