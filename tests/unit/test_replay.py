"""A log through two scripted versions: the answers are known."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from optimizers.dataset import Row
from optimizers.flip_clusters import WORTH_GROUPING
from optimizers.replay import replay, share_of
from optimizers.replay_log import read_requests
from optimizers.replayed import Choice, Logged, Replay
from optimizers.scrub import Scrubber
from optimizers.text_router import ASK_LM, CLARIFY, REFUSE, Decided, EncodedText
from service.catalog.model import Catalog
from service.routing.encoder import Encoder
from tests.unit.replayable import a_signal, batches, quiet

PLACES = ("Ohio", "Iowa", "Utah", "Maine")
GAPS = [f"where do we leave {brand} scripts in {place}" for brand in ("Kisqali", "Leqvio", "Entresto") for place in PLACES]
PICNIC = [f"{who} wants a {what} for the picnic" for who in ("Ann", "Bob", "Cid") for what in ("sandwich", "cake", "blanket", "kite")]


class Scripted:
    """Chooses by text; is sure of its choice, and gives every other one the rest."""

    def __init__(self, version: str, catalog: Catalog, choices: Mapping[str, str | int], usual: str | int, sure: float = 0.8) -> None:
        self.version, self._choices, self._usual, self._sure = version, choices, usual, sure
        self._number = {agent.name: i for i, agent in enumerate(catalog.agents)}

    def decide(self, encoded: Sequence[EncodedText]) -> Decided:
        """Look each text up."""
        chosen = [self._choices.get(one.text, self._usual) for one in encoded]
        choice = np.array([self._number[one] if isinstance(one, str) else one for one in chosen])
        rest = (1.0 - self._sure) / len(self._number)
        agents, outside = np.full((len(choice), len(self._number)), rest), np.full(len(choice), rest)
        agents[choice >= 0, choice[choice >= 0]] = outside[choice < 0] = self._sure
        return Decided(choice, agents, outside)


def compare(
    catalog: Catalog,
    encoder: Encoder,
    signals: Sequence[dict[str, object]],
    old: Scripted,
    new: Scripted,
    *,
    seen: frozenset[str] = frozenset(),
) -> Replay:
    """Replay signals."""
    requests = read_requests(batches(*signals), 1_000, quiet)
    return replay(requests, old, new, encoder=encoder, catalog=catalog, seen=seen, scrub=Scrubber(), progress=quiet)


def test_flips_are_parted_by_choice_and_meaning(catalog: Catalog, encoder: Encoder) -> None:
    """Two meanings that flip the same way are two clusters, one that flips another way is a third; what does not flip is none."""
    assert len(GAPS) + len(PICNIC) >= WORTH_GROUPING
    signals = [a_signal(text) for text in [*GAPS, *PICNIC, "stay", "leave"] for _ in range(2)]
    old = Scripted("1", catalog, {}, "gap_analyzer")
    new = Scripted("2", catalog, {"stay": "gap_analyzer", "leave": REFUSE}, "explainer")

    found = compare(catalog, encoder, signals, old, new)

    assert (found.requests, found.texts, found.flipped, found.another_agent) == (52, 26, 50, 48)
    assert sorted((str(c.source), str(c.target), c.requests, c.texts) for c in found.clusters) == [
        ("gap_analyzer", "explainer", 24, 12),
        ("gap_analyzer", "explainer", 24, 12),
        ("gap_analyzer", "refuse", 2, 1),
    ]
    shown = [set(c.examples) for c in found.clusters if c.texts == 12]
    assert sorted(len(examples & set(GAPS)) for examples in shown) == [0, 3]


def test_what_is_known_of_who_was_right_is_counted(catalog: Catalog, encoder: Encoder) -> None:
    """A correction of one request speaks for its text; a success for the agent that was asked; a choice for what was asked before it."""
    signals = [
        a_signal("corrected", corrected_agent="explainer"),
        a_signal("corrected"),
        a_signal("succeeded"),
        a_signal("failed", agents_succeeded=0, agents_failed=1),
        a_signal("chosen", None),
        a_signal("the second", "explainer", asked=" chosen", intent="explanation", rung="rules"),
        a_signal("nothing observed", agents_succeeded=0),
    ]
    old, new = Scripted("1", catalog, {}, "gap_analyzer"), Scripted("2", catalog, {}, "explainer")

    found = compare(catalog, encoder, signals, old, new)

    (cluster,) = found.clusters
    assert (cluster.requests, cluster.gains, cluster.losses, cluster.even, cluster.unknown, cluster.said) == (6, 4, 1, 0, 1, 3)
    assert (found.gains, found.losses, found.left_out) == (4, 1, {"an answer to a question": 1})
    rest = 0.2 / len(catalog.agents)
    pooled = (0.8 + rest) / 2  # what both versions together believe of either choice
    assert cluster.broken == pytest.approx(1 + pooled)
    assert cluster.mended == pytest.approx(3 + pooled / (1 - pooled) + pooled)
    assert cluster.expected_errors == (
        (pytest.approx(6 * 0.2), pytest.approx(6 * (1 - rest))),
        (pytest.approx(6 * (1 - rest)), pytest.approx(6 * 0.2)),
    )


def test_a_text_that_is_corrected_in_two_ways_is_not_known(catalog: Catalog, encoder: Encoder) -> None:
    """Neither says more than the other."""
    signals = [a_signal("where", agents_succeeded=0, corrected_agent=agent) for agent in ("explainer", "gap_analyzer")]

    found = compare(catalog, encoder, signals, Scripted("1", catalog, {}, "gap_analyzer"), Scripted("2", catalog, {}, "explainer"))

    assert (found.gains, found.losses) == (0, 0)


def test_what_is_likely_to_break_most_comes_first(catalog: Catalog, encoder: Encoder) -> None:
    """Three that are known to be lost go before ten that only may be."""
    many, few = [f"sandwich {i}" for i in range(10)], [f"gap {i}" for i in range(3)]
    signals = [a_signal(text, agents_succeeded=0) for text in many] + [a_signal(text, "gap_analyzer") for text in few]
    old = Scripted("1", catalog, dict.fromkeys(few, "gap_analyzer"), "drift_monitor", sure=0.1)
    new = Scripted("2", catalog, dict.fromkeys(many, ASK_LM), "explainer", sure=0.1)

    found = compare(catalog, encoder, signals, old, new)

    assert [(str(c.source), str(c.target)) for c in found.clusters] == [("gap_analyzer", "explainer"), ("drift_monitor", "ask the LM")]


def test_costs_are_those_of_both_versions(catalog: Catalog, encoder: Encoder) -> None:
    """Shares put to an LM and to the user; the agents' mean latency in the log, and their timeouts."""
    signals = [
        a_signal("a", total_latency_ms=100.0),
        a_signal("b", total_latency_ms=300.0),
        a_signal("c", "explainer", total_latency_ms=1_000.0),
        a_signal("d", total_latency_ms=200.0),
    ]
    old = Scripted("1", catalog, {"d": ASK_LM}, "gap_analyzer")
    new = Scripted("2", catalog, {"a": ASK_LM, "b": CLARIFY, "c": "explainer"}, "health_score")

    found = compare(catalog, encoder, signals, old, new)

    timeout = {name: catalog.agent[name].timeout_ms for name in ("gap_analyzer", "explainer", "health_score")}
    assert [figure.value for figure in (*found.asked_lm, *found.asked_user)] == [0.25, 0.25, 0.0, 0.25]
    assert [(c.dispatched, c.latency_ms, c.latency_told) for c in found.costs] == [(3, 200.0, 3), (2, 1_000.0, 1)]
    assert [c.timeout_ms for c in found.costs] == [timeout["gap_analyzer"], (timeout["explainer"] + timeout["health_score"]) / 2]
    by_flip = {(str(c.source), str(c.target)): c for c in found.clusters}
    assert by_flip["gap_analyzer", "ask the LM"].lm_requests == 1
    assert by_flip["gap_analyzer", "ask the user"].questions == 1
    assert by_flip["ask the LM", "health_score"].lm_requests == -1
    assert by_flip["gap_analyzer", "explainer"].latency_ms == (200.0, 1_000.0)
    assert by_flip["ask the LM", "health_score"].timeout_ms == (None, timeout["health_score"])


def test_what_was_decided_then_is_compared_by_who_decided(catalog: Catalog, encoder: Encoder) -> None:
    """The same agent, or nobody, is the same; what an LM would choose is not known."""
    signals = [
        a_signal("a"),
        a_signal("b", None),
        a_signal("c", "an_agent_of_old"),
        a_signal("d", "explainer", rung="lm", router_version="7"),
    ]
    old = Scripted("1", catalog, {"b": REFUSE, "d": ASK_LM}, "gap_analyzer")
    new = Scripted("2", catalog, {"b": CLARIFY, "a": ASK_LM}, "explainer")

    found = compare(catalog, encoder, signals, old, new)

    assert found.logged == (
        Logged("1", "student", 3, same_as_old=2, same_as_new=1, old_asks_lm=0, new_asks_lm=1),
        Logged("7", "lm", 1, same_as_old=0, same_as_new=1, old_asks_lm=1, new_asks_lm=0),
    )


def test_gains_on_what_the_new_version_was_fitted_on_are_told_apart(catalog: Catalog, encoder: Encoder) -> None:
    """It has seen one of three corrections."""
    signals = [a_signal(text, corrected_agent="explainer") for text in ("Seen before", "never seen", "nor this")]
    old, new = Scripted("1", catalog, {}, "gap_analyzer"), Scripted("2", catalog, {}, "explainer")

    found = compare(catalog, encoder, signals, old, new, seen=frozenset([Row("seen  BEFORE", "").key]))

    assert (found.gains, found.fresh_gains, found.fitted_on.value, found.clusters[0].fitted_on) == (3, 2, 1 / 3, 1)


def test_examples_are_shown_without_personal_data(catalog: Catalog, encoder: Encoder) -> None:
    """An address, and the ids of everybody who said it; texts that are equal then are shown once."""
    signals = [
        a_signal("mail jane@acme.com for user-17", user_id="user-17"),
        a_signal("mail bob@acme.com for user-17", user_id="user-18"),
        a_signal("mail bob@acme.com for user-17", user_id="user-17"),
    ]
    old, new = Scripted("1", catalog, {}, "gap_analyzer"), Scripted("2", catalog, {}, "explainer")

    found = compare(catalog, encoder, signals, old, new)

    assert found.clusters[0].examples == ("mail [EMAIL] for [ID]",)


def test_versions_that_agree_flip_nothing(catalog: Catalog, encoder: Encoder) -> None:
    """And the interval says how sure that is."""
    old, new = Scripted("1", catalog, {}, "gap_analyzer"), Scripted("2", catalog, {}, "gap_analyzer")

    found = compare(catalog, encoder, [a_signal(f"text {i}") for i in range(20)], old, new)

    assert (found.clusters, found.flipped, found.flips.value, found.broken) == ((), 0, 0.0, 0.0)
    assert found.flips.high == pytest.approx(0.161, abs=0.001)  # Wilson, 0 of 20


def test_repetitions_of_a_text_are_not_counted_as_evidence() -> None:
    """A hundred requests in two texts are worth two; in a hundred texts, a hundred."""
    flags = np.array([True] * 50 + [False] * 50)

    repeated, different = share_of(flags, np.array([0] * 50 + [1] * 50)), share_of(flags, np.arange(100))

    assert (repeated.value, different.value) == (0.5, 0.5)
    assert (repeated.low, repeated.high) == (pytest.approx(0.0945, abs=1e-3), pytest.approx(0.9055, abs=1e-3))  # Wilson, 1 of 2
    assert (different.low, different.high) == (pytest.approx(0.4038, abs=1e-3), pytest.approx(0.5962, abs=1e-3))  # Wilson, 50 of 100


def test_a_choice_has_a_name() -> None:
    """An agent its own, the others words."""
    assert [str(Choice(*of)) for of in (("dispatch", "explainer"), ("ask_lm",), ("clarify",), ("refuse",))] == [
        "explainer",
        "ask the LM",
        "ask the user",
        "refuse",
    ]
