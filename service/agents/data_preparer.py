"""data_preparer (tier 0): builds the training table of a scope and checks it; a failed gate stops the pipeline."""

from service.agents.chart import Row, Spec, bar_chart, table
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot
from service.agents.training.checks import Expectation, QualityReport
from service.agents.training.data import Prepared, prepare
from service.agents.training.scope import TrainingScope
from service.agents.training.table import dataset_of
from service.agents.training.target import label_of
from service.contracts.dispatch import AgentDispatch


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Prepare the data of the scope in the context, or of the question, and report their quality.

    Confidence is the share of expectations that are met.

    Raises:
        AgentFailure: The scope does not fit (`invalid_input`), or the question asks for what the data cannot give.
    """
    prepared = prepare(dispatch, data)
    report = prepared.report
    return Finding(
        primary_output={"dataset": dataset_of(prepared.table, prepared.scope, data), "qc_report": describe_report(report)},
        confidence=report.share_met,
        evidence=_evidence(prepared),
        caveats=(*prepared.caveats, *_caveats(prepared)),
        visualizations=_charts(report, prepared.scope),
        tables=(table("Failed expectations", [_row(one) for one in report.failed]), table("Expectations by kind", _kinds(report))),
        blocked=report.reason,
        model_used="expectations over the training table",
    )


def describe_report(report: QualityReport) -> dict[str, object]:
    """Return the report as an agent hands it on."""
    return {
        "passed": report.passed,
        "share_met": report.share_met,
        "minimum": report.minimum,
        "failed": len(report.failed),
        "failed_critical": sum(one.severity == "critical" for one in report.failed),
        "expectations": [_row(one) for one in report.expectations],
    }


def _row(one: Expectation) -> Row:
    return {
        "expectation": one.name,
        "column": one.column,
        "observed": one.observed,
        "rule": one.rule,
        "limit": one.limit,
        "passed": one.passed,
        "severity": one.severity,
    }


def _kinds(report: QualityReport) -> list[Row]:
    names = dict.fromkeys(one.name for one in report.expectations)
    groups = {name: [one for one in report.expectations if one.name == name] for name in names}
    return [
        {"expectation": name, "severity": ones[0].severity, "checked": len(ones), "met": sum(one.passed for one in ones)}
        for name, ones in groups.items()
    ]


def _evidence(prepared: Prepared) -> list[str]:
    report, data, scope = prepared.report, prepared.table, prepared.scope
    met = sum(one.passed for one in report.expectations)
    verdict = "passed" if report.passed else "failed"
    sentences = [
        f"QC gate {verdict}: {100 * report.share_met:.0f} % of the expectations are met ({met} of {len(report.expectations)}; at least "
        f"{100 * report.minimum:.0f} % and every critical one are needed)."
    ]
    if report.reason:
        sentences.append(report.reason)
    sizes = {name: int(data.rows(name).sum()) for name in ("train", "validation", "test")}
    sentences.append(
        f"{len(data.target):,} rows of {len(set(data.hcp.tolist())):,} HCPs at {len(data.origins)} origins, {len(data.columns)} columns: "
        f"{sizes['train']:,} rows to train, {sizes['validation']:,} to validate, {sizes['test']:,} of the latest weeks to test."
    )
    if len(data.target):
        means = [float(data.target[data.rows(name)].mean()) for name in ("train", "test") if sizes[name]]
        sentences.append(f"Target ({label_of(scope.wanted, scope.horizon_weeks)}): {_write_means(scope, means)}.")
    sentences.append(
        f"Found and repaired: {data.negative_samples} negative samples in {data.sample_cells:,} HCP-weeks (set to 0), "
        f"{data.missing_panel_sizes} "
        f"missing panel sizes (set to the median), {data.unknown_targets} rows with an unknown target (dropped)."
    )
    sentences += [f"Not met ({one.severity}): {one.write()}." for one in report.failed[:5]]
    return sentences


def _write_means(scope: TrainingScope, means: list[float]) -> str:
    unit = f"mean {scope.wanted.unit}" if scope.task == "regression" else "% of the rows"
    shown = [f"{value:.2f}" if scope.task == "regression" else f"{100 * value:.1f}" for value in means]
    return f"{shown[0]} {unit} in training" + (f", {shown[1]} in the test weeks" if len(shown) > 1 else "")


def _caveats(prepared: Prepared) -> list[str]:
    drifted = [one.column for one in prepared.report.failed if one.name == "psi" and one.column]
    if not drifted:
        return []
    return [
        f"{len(drifted)} inputs moved between the training and the test weeks ({', '.join(drifted[:4])}): the model may fit later weeks "
        "less well."
    ]


def _charts(report: QualityReport, scope: TrainingScope) -> tuple[Spec, ...]:
    moved = sorted((one for one in report.expectations if one.name == "psi"), key=lambda one: -one.observed)[:20]
    alone = [one for one in report.expectations if one.name in {"auc_alone", "correlation_alone"}]
    rows: list[Row] = [{"column": one.column, "psi": round(one.observed, 4)} for one in moved]
    strength: list[Row] = [
        {"column": one.column, "value": round(one.observed, 4)} for one in sorted(alone, key=lambda one: -one.observed)[:20]
    ]
    if not rows:
        return ()
    what = "AUC" if scope.task == "classification" else "Correlation"
    return (
        bar_chart("drift", "PSI between training and test weeks, largest 20 inputs", rows, value="psi", label="column"),
        bar_chart("leakage", f"{what} of one input alone, largest 20 inputs", strength, value="value", label="column"),
    )
