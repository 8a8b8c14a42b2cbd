"""From observations to what a fit learns from."""

import numpy as np
import pyarrow as pa

from optimizers.dataset import Row
from optimizers.evidence import FEWEST_TEXTS, learn_from
from optimizers.label_model import FAILED, NONE, SUCCEEDED
from optimizers.observations import SCHEMA
from optimizers.student import fit
from service.routing.encoder import Encoder

SERVES = {"gap_analysis": "gap_analyzer", "drift_check": "drift_monitor", "health_check": "health_score"}
LABELS = ("drift_check", "gap_analysis", "oos")
PLAIN = {"session": 1, "at": 0, "asked": "gap_analyzer", "outcome": SUCCEEDED, "rating": NONE, "again": NONE, "router_version": "1"}


def observed(*rows: dict[str, object]) -> pa.Table:
    """Return observations, each of a text of its own unless said otherwise."""
    return pa.Table.from_pylist([{**PLAIN, "text": f"text {i}", **row} for i, row in enumerate(rows)], schema=SCHEMA)


def test_equal_texts_are_one_request_with_several_observations() -> None:
    """Whatever their case; the first one's words and session stay."""
    made = learn_from(observed({"text": "Where ARE gaps", "session": 7}, {"text": "where are gaps", "outcome": FAILED}), SERVES)

    assert made is not None
    evidence = made.evidence(LABELS)
    assert (made.texts, made.sessions) == (("Where ARE gaps",), ("7",))
    assert (evidence.size, evidence.row.tolist(), evidence.outcome.tolist()) == (1, [0, 0], [SUCCEEDED, FAILED])


def test_a_correction_allows_all_labels_of_its_agent_and_a_choice_its_own() -> None:
    """Out of scope is served by nobody, and a name that no label has is no claim."""
    rows = observed({"corrected": "drift_monitor"}, {"chosen": "gap_analysis"}, {"caller": "something_else"}, {"lm": "drift_check"})

    made = learn_from(rows, {**SERVES, "model_decay": "drift_monitor"})

    assert made is not None
    evidence = made.evidence(("drift_check", "gap_analysis", "model_decay", "oos"))
    assert evidence.serves.tolist()[-1] == NONE
    assert evidence.serves[0] == evidence.serves[2] != evidence.serves[1]
    assert evidence.claims["correction"].fits.tolist() == [[True, False, True, False]]
    assert evidence.claims["choice"].fits.tolist() == [[False, True, False, False]]
    assert sorted(evidence.claims) == ["choice", "correction", "lm"]


def test_what_was_said_goes_before_what_failed_and_that_before_the_latest() -> None:
    """Where there are more texts than one fit takes."""
    rows = observed({}, {"outcome": FAILED}, {"corrected": "drift_monitor"}, {}, {})

    made = learn_from(rows, SERVES, most=3)

    assert made is not None
    assert made.texts == ("text 1", "text 2", "text 4")
    assert made.evidence(LABELS).size == 3


def test_an_empty_log_teaches_nothing() -> None:
    """And is no error."""
    assert learn_from(observed(), SERVES) is None


def test_an_intent_that_only_users_name_is_learned(encoder: Encoder) -> None:
    """The catalogue has it, no labelled request does, and five corrections say what it is."""
    labelled = [Row(f"where are we losing {x}", "gap_analysis") for x in ("scripts", "share", "volume", "ground")]
    labelled += [Row(f"has the {x} shifted", "drift_check") for x in ("input", "data", "distribution", "model")]
    asked = ["is the pipeline up", "are all services running", "system status please", "is anything down", "did the nightly jobs finish"]
    few, enough = (
        learn_from(
            observed(*({"text": text, "session": i, "outcome": FAILED, "corrected": "health_score"} for i, text in enumerate(some))), SERVES
        )
        for some in (asked[: FEWEST_TEXTS - 1], asked)
    )
    assert few is not None
    assert enough is not None

    fitted = fit(labelled, encoder, logged=enough)

    assert few.labels == ()
    assert fitted.student.practised == ("drift_check", "gap_analysis", "health_check")
    assert next(iter(fitted.student.read("are the services up and running").probabilities)) == "health_check"
    assert np.isfinite(fitted.held_out.values).all()
