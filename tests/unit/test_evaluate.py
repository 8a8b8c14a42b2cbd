"""An evaluation counts each row once, and every figure has its interval and its number of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.dataset import Row
from optimizers.evaluate import Figure, Report, evaluate
from service.routing.student import Reading

VECTOR = np.zeros(1, np.float32)


def reading(label: str, oos_score: float) -> Reading:
    """Return a reading whose best label is given."""
    return Reading({label: 0.9, "other": 0.1}, oos_score, VECTOR)


FIGURES = {  # from Wilson (1927), computed by hand: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
    "none": (0, 0, (0.0, 0.0, 1.0)),
    "all of ten": (10, 10, (1.0, 0.7225, 1.0)),
    "none of ten": (0, 10, (0.0, 0.0, 0.2775)),
    "half of ten": (5, 10, (0.5, 0.2366, 0.7634)),
    "ninety of a hundred": (90, 100, (0.9, 0.8256, 0.9448)),
}


@pytest.mark.parametrize(("hits", "n", "figure"), FIGURES.values(), ids=FIGURES)
def test_a_share_has_a_wilson_interval(hits: int, n: int, figure: tuple[float, float, float]) -> None:
    """Against the formula's published values; without rows nothing is known."""
    share = Figure.share(hits, n)

    assert (share.value, share.low, share.high) == pytest.approx(figure, abs=1e-4)
    assert share.n == n


@given(n=st.integers(1, 500), share=st.floats(0.0, 1.0))
def test_the_interval_holds_the_share(n: int, share: float) -> None:
    """And lies in [0, 1]."""
    figure = Figure.share(round(share * n), n)

    assert 0.0 <= figure.low <= figure.value + 1e-12
    assert figure.value <= figure.high + 1e-12
    assert figure.high <= 1.0


def test_each_figure_counts_what_it_says() -> None:
    """Accuracy and acceptance over in-scope rows, refusals over the others; errors are listed."""
    readings = {
        "right": reading("a", 0.1),
        "wrong": reading("b", 0.2),
        "right but refused": reading("a", 0.9),
        "refused": reading("a", 0.95),
        "let through": reading("a", 0.3),
    }
    rows = [Row("right", "a"), Row("wrong", "a"), Row("right but refused", "a"), Row("refused", "oos"), Row("let through", "oos")]

    report = evaluate(rows, readings.__getitem__, 0.5)

    assert report.accuracy == Figure.share(2, 3)
    assert report.accepted == Figure.share(2, 3)
    assert report.refused == Figure.share(1, 2)
    assert report.refused_at_95 == Figure.share(1, 2)
    assert report.confusions == (("a", "b", "wrong"),)
    assert list(report.figures()) == ["accuracy", "accepted", "refused", "refused_at_95"]


def test_the_thresholds_are_exclusive() -> None:
    """A score at the threshold is accepted, as the policy accepts it."""
    report = evaluate([Row("x", "a"), Row("y", "oos")], lambda _: reading("a", 0.5), 0.5)

    assert (report.accepted.value, report.refused.value) == (1.0, 0.0)


def test_refusals_at_95_use_the_threshold_of_these_rows() -> None:
    """Nineteen of twenty in-scope rows are accepted there, whatever the policy's threshold."""
    scores = {f"in {i}": i / 100 for i in range(20)} | {"far": 0.5, "near": 0.185}
    rows = [Row(t, "a" if t.startswith("in") else "oos") for t in scores]

    report = evaluate(rows, lambda text: reading("a", scores[text]), 1.0)

    assert report.refused_at_95 == Figure.share(1, 2)
    assert report.refused == Figure.share(0, 2)


@pytest.mark.parametrize("rows", [[], [Row("x", "oos")], [Row("x", "a")]], ids=["no rows", "none in scope", "none out of scope"])
def test_an_evaluation_of_little_is_possible(rows: list[Row]) -> None:
    """Figures without rows say that nothing is known."""
    report = evaluate(rows, lambda _: reading("a", 0.5), 0.4)

    assert isinstance(report, Report)
    assert sum(f.n == 0 for f in report.figures().values()) in {2, 4}


def test_each_row_is_read_once() -> None:
    """A golden set is looked at once."""
    seen: list[str] = []

    def read(text: str) -> Reading:
        seen.append(text)
        return reading("a", 0.1)

    evaluate([Row("x", "a"), Row("y", "oos"), Row("z", "a")], read, 0.5)

    assert seen == ["x", "y", "z"]
