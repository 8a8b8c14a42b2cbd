"""model_selector (tier 0): cross-validates model families and selects the simplest that is about as good as the best."""

from service.agents.chart import Row, interval_chart, table
from service.agents.data_preparer import describe_report
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot
from service.agents.training.data import Prepared, prepare
from service.agents.training.families import LABELS
from service.agents.training.search import Candidate, Search, search
from service.contracts.dispatch import AgentDispatch


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Compare the scope's families and select one.

    Confidence is the share of folds in which the selected candidate is at least as good as the mean of all others of other
    families, less the relative gap between its score in the folds and on the later validation weeks.

    Raises:
        AgentFailure: What was handed over does not fit (`invalid_input`), or the question asks for what the data cannot give.
    """
    prepared = prepare(dispatch, data)
    if prepared.blocked is not None:
        return blocked_finding(prepared)
    found = search(prepared.table, prepared.scope, dispatch.payload.constraints.max_latency_ms)
    rows = [_row(one, found) for one in _ranked(found)]
    return Finding(
        primary_output={
            "selected": {
                "family": found.selected.family,
                "parameters": found.selected.parameters,
                "score": found.selected.mean,
                "standard_error": found.selected.standard_error,
                "folds": found.folds,
            },
            "metric": found.metric.name,
            "higher_is_better": found.metric.higher_is_better,
            "best": {"family": found.best.family, "parameters": found.best.parameters, "score": found.best.mean},
            "rule": "simplest within one standard error of the best",
            "candidates": rows,
            "rows": found.rows,
        },
        confidence=_confidence(found),
        evidence=_evidence(found),
        caveats=(*prepared.caveats, *_caveats(prepared, found)),
        visualizations=(
            interval_chart(
                "candidates",
                f"{found.metric.label} in {found.folds} folds, mean ± 2 standard errors",
                _chart_rows(found),
                label="candidate",
                value="score",
            ),
        ),
        tables=(table("Candidates", [{**row, "parameters": _write(row["parameters"])} for row in rows]),),
        model_used="scikit-learn, grouped cross-validation",
    )


def blocked_finding(prepared: Prepared) -> Finding:
    """Return the finding of an agent that must not go on because the quality gate is shut."""
    return Finding(
        primary_output={"qc_report": describe_report(prepared.report)},
        confidence=prepared.report.share_met,
        evidence=(f"Nothing was trained: {prepared.blocked}",),
        caveats=prepared.caveats,
        blocked=prepared.blocked,
        model_used="expectations over the training table",
    )


def _ranked(found: Search) -> list[Candidate]:
    return sorted(found.candidates, key=lambda one: -one.mean if found.metric.higher_is_better else one.mean)


def _confidence(found: Search) -> float:
    chosen = found.selected
    others = [one for one in found.candidates if one.family != chosen.family]
    if others:
        means = [sum(one.scores[fold] for one in others) / len(others) for fold in range(found.folds)]
        wins = sum(not found.metric.better(mean, score) for mean, score in zip(means, chosen.scores, strict=True))
        share = (wins + 1.0) / (found.folds + 2.0)
    else:
        share = 1.0 - 1.0 / (found.folds + 2.0)
    gap = abs(chosen.validation - chosen.mean) / max(abs(chosen.mean), 1e-9)
    return share * max(0.0, 1.0 - gap)


def _evidence(found: Search) -> list[str]:
    chosen, best, label = found.selected, found.best, found.metric.label
    sentences = [
        f"Selected: {LABELS[chosen.family]} ({_write(chosen.parameters)}), {label} {chosen.mean:.3f} ± {chosen.standard_error:.3f} over "
        f"{found.folds} "
        f"folds, and {chosen.validation:.3f} on the later validation weeks."
    ]
    if chosen is best:
        sentences.append(
            f"It has the best mean of the {len(found.candidates)} candidates, and no simpler one lies within one standard error."
        )
    else:
        sentences.append(
            f"The best mean is that of {LABELS[best.family]} ({_write(best.parameters)}), {best.mean:.3f} ± {best.standard_error:.3f}; "
            "the selected "
            "one is the simplest within one standard error of it (Breiman et al. 1984)."
        )
    firsts: dict[str, Candidate] = {}
    for one in _ranked(found):
        firsts.setdefault(one.family, one)
    sentences.append(
        "Best of each family: "
        + "; ".join(f"{LABELS[name]} {one.mean:.3f} ± {one.standard_error:.3f}" for name, one in firsts.items())
        + "."
    )
    sentences.append(f"Folds are drawn by HCP ({found.rows:,} rows), so no HCP is in the training and the judging part of a fold.")
    return sentences


def _caveats(prepared: Prepared, found: Search) -> list[str]:
    caveats = []
    trained = int(prepared.table.rows("train").sum())
    if found.rows < trained:
        caveats.append(f"The comparison used {found.rows:,} of {trained:,} training rows, whole HCPs drawn at random.")
    if found.skipped:
        caveats.append(f"Time was short: {found.skipped} of {found.skipped + len(found.candidates)} candidates were not tried.")
    if prepared.scope.class_weights and any(one.family in {"k_nearest", "neural_network"} for one in found.candidates):
        caveats.append("Class weights do not act on nearest neighbours and neural networks.")
    return caveats


def _row(one: Candidate, found: Search) -> Row:
    return {
        "family": one.family,
        "parameters": one.parameters,
        "mean": one.mean,
        "standard_error": one.standard_error,
        "validation": one.validation,
        "fold_scores": list(one.scores),
        "selected": one is found.selected,
    }


def _chart_rows(found: Search) -> list[Row]:
    return [
        {
            "candidate": f"{one.family} ({_write(one.parameters)})",
            "score": round(one.mean, 4),
            "low": round(one.mean - 2 * one.standard_error, 4),
            "high": round(one.mean + 2 * one.standard_error, 4),
        }
        for one in _ranked(found)
    ]


def _write(parameters: object) -> str:
    values = parameters if isinstance(parameters, dict) else {}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value is not None)
