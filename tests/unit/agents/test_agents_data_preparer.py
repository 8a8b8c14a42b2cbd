"""data_preparer builds the table that a scope describes, finds the known blemishes, and shuts the gate when it must."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.agents.directory import run_agent
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.agents.training.checks import Expectation, QualityReport, check_table, excess_psi, single_auc
from service.agents.training.scope import TrainingScope
from service.agents.training.table import build_table, choose_history, origins_within, split_origins
from service.contracts.handoff import HandoffStatus
from tests.golden_checks.training_rows import input_columns, training_rows

Ask = Callable[..., Finding]


def output_of(finding: Finding) -> dict[str, Any]:
    """Return the output with its values open to tests."""
    found: Any = finding.primary_output
    return dict(found)


def scope_for(ask: Ask, query: str, **entities: str) -> dict[str, Any]:
    """Return the scope of a request."""
    found: Any = ask("scope_definer", context={"raw_query": query}, **entities).primary_output
    return dict(found["scope"])


def test_the_table_is_that_of_an_independent_build(ask: Ask, data: Snapshot) -> None:
    """Row by row and column by column, pandas gives the same."""
    scope = scope_for(ask, "fabhalta conversion, last 12 months")
    table, rows = build_table(TrainingScope.model_validate(scope), data), training_rows(scope, data)

    assert list(table.columns) == input_columns(rows)
    assert np.allclose(table.values, rows[list(table.columns)].to_numpy())
    assert np.array_equal(table.target, rows["target"].to_numpy())
    assert table.split.tolist() == rows["split"].tolist()


@pytest.mark.parametrize("query", ["churn", "kisqali demand", "market share", "account growth in the west", "nrx in 8 weeks"])
def test_no_input_sees_the_weeks_of_its_target(ask: Ask, data: Snapshot, query: str) -> None:
    """With everything after the last origin erased, the inputs are the same."""
    scope = TrainingScope.model_validate(scope_for(ask, query))
    table = build_table(scope, data)
    last = table.origins[-1]
    blind = {name: np.where(np.arange(data.weeks)[:, None] < last, values, 0) for name, values in data.weekly.items()}
    erased = build_table(scope, Snapshot(data.hcps, blind, data.week_ends))
    seen, again = (one.values[one.origin == last] for one in (table, erased))

    if scope.target == "market_share":
        assert len(again) == 0  # without a market the target is unknown
    else:
        assert np.array_equal(seen, again)


def test_the_test_weeks_are_later_than_all_others(ask: Ask, data: Snapshot) -> None:
    """Train, validation and test follow each other, and no outcome reaches into the next part."""
    for query in ("conversion", "conversion, last 24 months", "conversion within 12 weeks"):
        scope = TrainingScope.model_validate(scope_for(ask, query))
        parts = split_origins(build_table(scope, data).origins)

        assert max(parts["train"]) + scope.horizon_weeks <= min(parts["validation"])
        assert max(parts["validation"]) + scope.horizon_weeks <= min(parts["test"])


@pytest.mark.parametrize(
    ("weeks", "horizon", "history", "origins"),
    [(52, 4, 26, 6), (26, 4, 13, 3), (13, 4, 4, 2), (104, 4, 26, 12), (52, 13, 13, 3), (8, 4, 4, 1), (5, 4, 4, 0)],
)
def test_history_shrinks_with_the_window(weeks: int, horizon: int, history: int, origins: int) -> None:
    """Six origins are wanted, three are needed; the latest twelve are the most."""
    assert choose_history(weeks, horizon) == history
    assert len(origins_within(0, weeks, history, horizon)) == origins


def test_the_known_blemishes_are_found_and_repaired(ask: Ask, data: Snapshot) -> None:
    """24 missing panel sizes and 12 negative samples, as docs/agents.md has it, are all in the 104 weeks."""
    finding = ask("data_preparer", context={"raw_query": "conversion, last 24 months"})
    dataset = output_of(finding)["dataset"]

    assert dataset["repairs"] == {"negative_samples_set_to_0": 12, "missing_panel_sizes_set_to_median": 24}
    assert any("12 negative samples" in sentence and "24 missing panel sizes" in sentence for sentence in finding.evidence)


def test_drift_in_emails_is_found(ask: Ask) -> None:
    """Emails rose by 60 % in the last 8 weeks; the drift expectation of the last 4 weeks' emails fails, that of potential holds."""
    report = output_of(ask("data_preparer", context={"raw_query": "fabhalta conversion"}))["qc_report"]
    drift = {one["column"]: one for one in report["expectations"] if one["expectation"] == "psi"}

    assert not drift["emails_4w"]["passed"]
    assert drift["potential"]["passed"]


def test_the_default_data_pass_at_98_per_cent(ask: Ask) -> None:
    """A brand's conversion over a year meets its expectations, and the confidence is the share met."""
    finding = ask("data_preparer", context={"raw_query": "fabhalta conversion"})
    report = output_of(finding)["qc_report"]

    assert report["passed"]
    assert finding.blocked is None
    assert finding.confidence == report["share_met"] == pytest.approx(0.98, abs=0.005)
    assert finding.evidence[0].startswith("QC gate passed: 98 %")


@pytest.mark.parametrize(
    ("query", "context", "said"),
    [
        ("conversion on the last 8 weeks", {}, "origins"),
        ("remibrutinib conversion in the south, last 6 months", {}, "training rows"),
        ("fabhalta conversion", {"qc_minimum": 0.999}, "99.9 %"),
        ("churn of academic nephrologists in the west, last 26 weeks", {}, "critical"),
    ],
    ids=["too-few-weeks", "too-few-rows", "stricter-minimum", "tiny-group"],
)
def test_the_gate_shuts_and_says_why(ask: Ask, query: str, context: dict[str, object], said: str) -> None:
    """One sentence blocks the pipeline; the report is there all the same."""
    finding = ask("data_preparer", context={"raw_query": query, **context})
    report = output_of(finding)["qc_report"]

    assert finding.blocked is not None
    assert said in finding.blocked
    assert not report["passed"]
    assert report["expectations"]


def test_a_blocked_gate_becomes_a_blocked_handoff(make_dispatch: Any, data: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handoff carries the report, the error type and the sentence."""
    monkeypatch.setattr("service.agents.sample_data.load_snapshot", lambda: data)
    handoff = run_agent("data_preparer", make_dispatch("data_preparer", context={"raw_query": "conversion on the last 8 weeks"}))

    assert handoff.execution.status is HandoffStatus.BLOCKED
    assert handoff.errors.error_type == "qc_gate_blocked"
    assert handoff.result.primary_output["qc_report"]["passed"] is False  # type: ignore[index,call-overload]


@pytest.mark.parametrize("value", [1.5, -0.1, "high", True], ids=str)
def test_a_senseless_minimum_is_refused(ask: Ask, value: object) -> None:
    """It must be a number from 0 to 1."""
    with pytest.raises(AgentFailure, match="qc_minimum") as failure:
        ask("data_preparer", context={"raw_query": "conversion", "qc_minimum": value})

    assert failure.value.error_type == "invalid_input"


@pytest.mark.parametrize(
    "change",
    [
        {"target": "miracles"},
        {"inputs": []},
        {"inputs": ["conversions_next_4w"]},
        {"inputs": ["trx_4w", "trx_4w"]},
        {"metric": "rmse"},
        {"task": "regression"},
        {"horizon_weeks": 0},
        {"folds": 1},
        {"first_week": "2026-06-14", "last_week": "2025-06-15"},
        {"first_week": "2020-01-05"},
        {"brands": ["Atlantis"]},
        {"trials": 10_000},
    ],
    ids=lambda change: ",".join(change),
)
def test_a_scope_that_does_not_fit_is_refused(ask: Ask, change: dict[str, object]) -> None:
    """What an earlier agent hands over is untrusted: unknown targets, inputs, weeks and brands fail as invalid input."""
    scope = scope_for(ask, "conversion") | change

    with pytest.raises(AgentFailure) as failure:
        ask("data_preparer", context={"scope": scope})

    assert failure.value.error_type == "invalid_input"


@pytest.mark.parametrize("scope", ["everything", 7, [], {"target": "conversion"}], ids=["text", "number", "list", "too-little"])
def test_a_scope_of_another_shape_is_refused(ask: Ask, scope: object) -> None:
    """Not a scope at all."""
    with pytest.raises(AgentFailure) as failure:
        ask("data_preparer", context={"scope": scope})

    assert failure.value.error_type == "invalid_input"


def test_the_id_is_the_content(ask: Ask) -> None:
    """The same scope gives the same id, another one another."""
    first, again, other = (
        output_of(ask("data_preparer", context={"raw_query": query}))["dataset"]["id"] for query in ("churn", "lapse", "growth")
    )

    assert first == again != other


def test_duplicates_constants_and_leaks_are_found(ask: Ask, data: Snapshot) -> None:
    """A copy of a row, a constant column and a column that knows the outcome each fail their expectation."""
    scope = TrainingScope.model_validate(scope_for(ask, "fabhalta conversion"))
    table = build_table(scope, data)
    values = table.values.copy()
    values[:, 0], values[:, 1] = 3.0, table.target * 5.0
    hcp = table.hcp.copy()
    hcp[1] = hcp[0]
    spoiled = type(table)(**{name: getattr(table, name) for name in table.__dataclass_fields__} | {"values": values, "hcp": hcp})

    failed = {(one.name, one.column) for one in check_table(spoiled, scope).failed}

    assert ("duplicate_rows", None) in failed
    honest = type(table)(**{name: getattr(table, name) for name in table.__dataclass_fields__} | {"values": values})
    failed = {(one.name, one.column) for one in check_table(honest, scope).failed}
    assert {("distinct_values", table.columns[0]), ("auc_alone", table.columns[1])} <= failed


def test_the_gate_needs_every_critical_expectation_and_the_share() -> None:
    """One critical failure shuts it whatever the share; warnings shut it below the minimum only."""
    good = tuple(Expectation("fine", str(at), 1.0, ">=", 0.0, "warning") for at in range(19))

    assert QualityReport((*good, Expectation("bad", None, 0.0, ">=", 1.0, "warning")), 0.95).passed
    assert not QualityReport((*good[1:], *[Expectation("bad", None, 0.0, ">=", 1.0, "warning")] * 2), 0.95).passed
    report = QualityReport((*good, Expectation("bad", None, 0.0, ">=", 1.0, "critical")), 0.5)
    assert not report.passed
    assert "critical" in str(report.reason)


def test_single_auc_and_psi_are_what_they_should_be() -> None:
    """A perfect column has 1, one class 0.5; the PSI of the same distribution is about 0."""
    rng = np.random.default_rng(0)
    target = np.repeat([0.0, 1.0], 50)

    assert single_auc(-target, target) == 1.0
    assert single_auc(target, np.ones(100)) == 0.5
    assert excess_psi(rng.normal(size=2_000), rng.normal(size=1_000)) < 0.02
    assert excess_psi(rng.normal(size=2_000), rng.normal(1.0, size=1_000)) > 0.5
