"""What the training agents begin with: the scope, its table, and whether that is the one that was prepared and may be used."""

from dataclasses import dataclass

from service.agents.finding import AgentFailure
from service.agents.sample_data import Snapshot
from service.agents.training.checks import LEAST_SHARE_MET, QualityReport, check_table
from service.agents.training.request import scope_for
from service.agents.training.scope import Dataset, QualityVerdict, TrainingScope, handed_over
from service.agents.training.table import Table, build_table
from service.contracts.dispatch import AgentDispatch


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A scope with its table and what the checks say of it."""

    scope: TrainingScope
    table: Table
    report: QualityReport
    all_brands: int
    all_regions: int
    caveats: tuple[str, ...]

    @property
    def blocked(self) -> str | None:
        """Why the data must not be used, or None."""
        return self.report.reason


def prepare(dispatch: AgentDispatch, data: Snapshot) -> Prepared:
    """Return the table of the scope that was handed over or asked for; data that nobody has checked are checked.

    Raises:
        AgentFailure: What was handed over does not fit (`invalid_input`), or the question asks for what the data cannot give.
    """
    scope, caveats = scope_for(dispatch, data)
    dataset = handed_over(dispatch, "dataset", Dataset)
    verdict = handed_over(dispatch, "qc_report", QualityVerdict)
    table = build_table(scope, data)
    if dataset is not None and (dataset.id, dataset.rows) != (table.id, len(table.target)):
        raise AgentFailure(
            "invalid_input",
            f"The dataset {dataset.id} with {dataset.rows} rows is not what the scope gives: {table.id} with {len(table.target)}.",
        )
    if verdict is not None and not verdict.passed:
        raise AgentFailure("invalid_input", "The quality gate did not open for these data, so no model may be trained on them.")
    # Prepared data have passed a gate with the caller's own minimum; here only what must never pass is checked again.
    report = check_table(table, scope, qc_minimum(dispatch) if dataset is None else 0.0)
    brands, regions = (len(set(data.labels(column).tolist())) for column in ("brand", "region"))
    return Prepared(scope, table, report, brands, regions, caveats)


def qc_minimum(dispatch: AgentDispatch) -> float:
    """Return the share of expectations that must be met: the context's `qc_minimum`, else 95 %.

    Raises:
        AgentFailure: It is not a number from 0 to 1 (`invalid_input`).
    """
    value = dispatch.payload.context.get("qc_minimum")
    if value is None:
        return LEAST_SHARE_MET
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise AgentFailure("invalid_input", "qc_minimum must be a number from 0 to 1, such as 0.95.")
    return float(value)
