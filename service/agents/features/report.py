"""What an analysis of inputs is told as: the output's fields, the sentences, the charts and tables."""

from collections.abc import Callable
from math import isfinite

from service.agents.chart import Row, Spec, bar_chart, interval_chart, table
from service.agents.features.analysis import Ablation, Analysis
from service.agents.features.importance import Importance
from service.agents.features.overlap import ALIKE, HIGH_INFLATION
from service.agents.features.selection import ROUNDS
from service.agents.training.checks import MOST_SINGLE_AUC, MOST_SINGLE_CORRELATION
from service.agents.training.inputs import written

SHOWN = 5


def describe(found: Analysis) -> dict[str, object]:
    """Return the output: what was not asked for is absent."""
    reference, request = found.reference, found.request
    output: dict[str, object] = {
        "target": reference.scope.target,
        "target_label": reference.label,
        "scope": reference.scope.model_dump(mode="json"),
        "model": {
            "family": reference.family,
            "parameters": reference.parameters,
            "source": reference.source,
            "metric": reference.metric.name,
            "score": reference.score,
        },
        "rows": {"fitted": len(reference.learn), "held_out": len(reference.test)},
        "analyses": list(request.analyses),
        "groups": [_importance_row(one) for one in found.groups],
        "columns": [_importance_row(one) for one in found.columns[: request.top]],
        "absent": list(request.absent),
    }
    if found.ablations:
        output["named"] = [_ablation_row(one) for one in found.ablations]
    if found.contributions is not None:
        output["contributions"] = [
            {
                "column": one.column,
                "mean_absolute": one.mean_absolute,
                "direction": "up" if one.sign > 0 else "down" if one.sign < 0 else "none",
            }
            for one in found.contributions[: request.top]
        ]
    if found.overlap is not None:
        overlap = found.overlap
        output["overlap"] = {
            "pairs": [{"first": first, "second": second, "correlation": value} for first, second, value in overlap.pairs[:40]],
            "clusters": [list(group) for group in overlap.clusters],
            "variance_inflation": [
                {"column": name, "vif": value if isfinite(value) else None} for name, value in overlap.inflation.items()
            ],
            "exact_combinations": [name for name, value in overlap.inflation.items() if not isfinite(value)],
            "constant": list(overlap.constant),
        }
    if found.alone is not None:
        output["leakage"] = [
            {"column": one.column, "alone": one.value, "alone_in_test": one.later, "suspicious": one.suspicious} for one in found.alone
        ]
    if found.reduction is not None:
        cut = found.reduction
        output["reduction"] = {
            "kept": list(cut.kept),
            "dropped": list(cut.dropped),
            "loss": cut.loss,
            "safe": cut.safe,
            "margin": cut.margin,
        }
    if found.shadows is not None:
        output["shadow_test"] = [
            {"column": one.column, "hits": one.hits, "rounds": ROUNDS, "verdict": one.verdict} for one in found.shadows
        ]
    return output


def sentences(found: Analysis) -> list[str]:
    """Return the evidence; what the question asks for first comes first."""
    writers: dict[str, Callable[[Analysis], list[str]]] = {
        "leakage": _leakage,
        "overlap": _overlap,
        "boruta": _shadows,
        "redundant": _reduction,
        "contribution": _contributions,
        "ablation": _named_or_all,
        "importance": _named_or_all,
    }
    lines: list[str] = []
    for name in (*found.request.analyses, "ablation", "importance"):
        lines += [line for line in writers[name](found) if line not in lines]
    lines += [line for line in _importance(found) if line not in lines]
    reference = found.reference
    lines.append(
        f"Measured on {len(reference.test):,} held-out rows of the latest weeks; the model ({reference.family.replace('_', ' ')}, "
        f"{reference.source}) has "
        f"{reference.metric.label} {reference.score:.3f} there."
    )
    return lines


def charts(found: Analysis) -> tuple[Spec, ...]:
    """Return the charts of the analyses that were run."""
    unit = f"loss of {found.reference.metric.label}"
    rows: list[Row] = [
        {
            "input": one.name,
            "loss": round(one.mean, 5),
            "low": round(one.mean - 2 * one.deviation, 5),
            "high": round(one.mean + 2 * one.deviation, 5),
        }
        for one in found.groups
    ]
    drawn: list[Spec] = [
        interval_chart("importance", f"Shuffled on held-out rows: {unit}, ± 2 standard deviations", rows, label="input", value="loss")
    ]
    if found.contributions is not None:
        sizes: list[Row] = [
            {"column": one.column, "contribution": round(one.mean_absolute, 4), "pushes": "up" if one.sign > 0 else "down"}
            for one in found.contributions[: found.request.top]
        ]
        drawn.append(bar_chart("contributions", "Mean absolute contribution", sizes, value="contribution", label="column", color="pushes"))
    if found.overlap is not None:
        pairs: list[Row] = [
            {"pair": f"{first} / {second}", "correlation": round(value, 3)} for first, second, value in found.overlap.pairs[:30]
        ]
        drawn.append(bar_chart("correlation", f"Pairs with |r| of at least {ALIKE}", pairs, value="correlation", label="pair"))
    if found.alone is not None:
        strong: list[Row] = [{"column": one.column, "alone": round(one.value, 4)} for one in found.alone[:20]]
        drawn.append(bar_chart("leakage", "What one input says by itself", strong, value="alone", label="column"))
    return tuple(drawn)


def tables(found: Analysis) -> tuple[Spec, ...]:
    """Return the tables of the analyses that were run."""
    made = [table("Importance by input", [_importance_row(one) for one in found.groups])]
    if found.ablations:
        made.append(table("Named inputs", [{**_ablation_row(one), "columns": ", ".join(one.shuffled.columns)} for one in found.ablations]))
    if found.overlap is not None:
        made.append(
            table(
                "Variance inflation",
                [
                    {"column": name, "vif": round(value, 2) if isfinite(value) else "exact"}
                    for name, value in found.overlap.inflation.items()
                ],
            )
        )
    if found.shadows is not None:
        made.append(
            table("Shadow-feature test", [{"column": one.column, "hits": one.hits, "verdict": one.verdict} for one in found.shadows])
        )
    return tuple(made)


def _importance(found: Analysis) -> list[str]:
    top, unit = found.groups[: min(found.request.top, SHOWN)], found.reference.metric.label
    listed = "; ".join(f"{written(one.name)} ({one.mean:.3f})" for one in top)
    idle = [written(one.name) for one in found.groups if one.mean <= 2 * one.deviation]
    lines = [
        f"The model for {found.reference.label} leans most on {written(top[0].name)}: shuffling it costs {top[0].mean:.3f} of {unit}. In "
        f"order: {listed}."
    ]
    if idle:
        lines.append(f"{len(idle)} of {len(found.groups)} inputs cost nothing that can be told from chance: {', '.join(idle[:8])}.")
    return lines


def _named_or_all(found: Analysis) -> list[str]:
    return _named(found) or _importance(found)


def _named(found: Analysis) -> list[str]:
    unit = found.reference.metric.label
    ranked = sorted(found.ablations, key=lambda one: -one.shuffled.mean)
    lines = []
    if len(ranked) > 1:
        first, second = ranked[0], ranked[1]
        clear = first.shuffled.mean - second.shuffled.mean > 2 * max(first.shuffled.deviation, second.shuffled.deviation)
        lead = "counts for more than" if clear else "does not measurably count for more than"
        lines.append(
            f"'{first.word}' {lead} '{second.word}': {_write(first.shuffled.mean)} against {_write(second.shuffled.mean)} of {unit} when "
            "shuffled."
        )
    for one in ranked:
        told = "no more than chance" if one.shuffled.mean <= 2 * one.shuffled.deviation else "more than chance"
        lines.append(
            f"'{one.word}' ({', '.join(one.shuffled.columns[:4])}): shuffling costs {_write(one.shuffled.mean)} ± "
            f"{one.shuffled.deviation:.4f} of {unit} ({told}), "
            f"refitting without costs {_write(one.dropped)}."
        )
    return lines


def _overlap(found: Analysis) -> list[str]:
    overlap = found.overlap
    if overlap is None:
        return []
    lines = []
    if len(overlap.columns) == 2:
        value = float(overlap.correlation[0, 1])
        verdict = "say largely the same thing" if abs(value) >= ALIKE else "do not say the same thing"
        lines.append(f"{overlap.columns[0]} and {overlap.columns[1]} {verdict}: r = {value:.2f}.")
    else:
        pair = overlap.pairs[0] if overlap.pairs else None
        strongest = f"; the closest are {pair[0]} and {pair[1]} (r = {pair[2]:.2f})" if pair else ""
        lines.append(f"{len(overlap.pairs)} pairs of the {len(overlap.columns)} columns have |r| of {ALIKE} or more{strongest}.")
    if overlap.clusters:
        lines.append(
            f"{len(overlap.clusters)} clusters of columns that go together: "
            + "; ".join(", ".join(group) for group in overlap.clusters[:4])
            + "."
        )
    exact = [name for name, value in overlap.inflation.items() if not isfinite(value)]
    if exact:
        lines.append(
            f"{len(exact)} columns are exact combinations of others ({', '.join(exact[:6])}): some of them carry nothing of their own."
        )
    finite = [(name, value) for name, value in overlap.inflation.items() if isfinite(value)]
    high = [(name, value) for name, value in finite if value > HIGH_INFLATION]
    listed = ", ".join(f"{name} {value:.1f}" for name, value in (high or finite)[:SHOWN])
    lines.append(f"{len(high)} columns have a variance inflation factor above {HIGH_INFLATION:.0f}; the largest: {listed}.")
    return lines


def _leakage(found: Analysis) -> list[str]:
    alone = found.alone
    if alone is None:
        return []
    what, limit = ("AUC", MOST_SINGLE_AUC) if found.reference.scope.task == "classification" else ("|r|", MOST_SINGLE_CORRELATION)
    bad = [one.column for one in alone if one.suspicious]
    verdict = f"{len(bad)} columns look like a leak ({', '.join(bad[:4])})" if bad else "No column looks like a leak"
    return [
        f"{verdict}: the strongest by itself, {alone[0].column}, has an {what} of {alone[0].value:.3f} (limit {limit}).",
        "Every input is a sum over weeks before the origin, or known of the HCP all along; none is written after the outcome.",
    ]


def _reduction(found: Analysis) -> list[str]:
    cut = found.reduction
    if cut is None:
        return []
    unit, count = found.reference.metric.label, len(cut.kept) + len(cut.dropped)
    if not cut.dropped:
        return [f"No set of fewer columns is as good as all {count} by {unit} in cross-validation."]
    verdict = "can go" if cut.loss < cut.margin else "seemed dispensable in cross-validation, but not on the later test weeks"
    return [
        f"{len(cut.dropped)} of {count} columns {verdict}: with the {len(cut.kept)} others the loss of {unit} on the test weeks is "
        f"{_write(cut.loss)}, and in {100 * cut.safe:.0f} % of the bootstrap replicates it is below {cut.margin:.3f}.",
        f"Kept: {', '.join(cut.kept)}.",
    ]


def _shadows(found: Analysis) -> list[str]:
    shadows = found.shadows
    if shadows is None:
        return []
    groups = {verdict: [one.column for one in shadows if one.verdict == verdict] for verdict in ("confirmed", "tentative", "rejected")}
    return [
        f"{len(groups['confirmed'])} of {len(shadows)} columns survive the shadow-feature test: "
        f"{', '.join(groups['confirmed'][:15]) or 'none'}.",
        f"{len(groups['tentative'])} stay undecided and {len(groups['rejected'])} are rejected, over {ROUNDS} rounds.",
    ]


def _contributions(found: Analysis) -> list[str]:
    if found.contributions is None:
        return []
    unit = "log odds" if found.reference.scope.task == "classification" else found.reference.scope.wanted.unit
    shown = found.contributions[: min(found.request.top, 15)]
    listed = "; ".join(f"{one.column} {one.mean_absolute:.3f} ({'up' if one.sign > 0 else 'down'})" for one in shown)
    return [f"Mean absolute contribution to the linear score ({unit}): {listed}."]


def _write(loss: float) -> str:
    """Write a loss; one below 0 is a gain, and -0.0 is 0."""
    return f"{round(loss, 4) + 0.0:.4f}"


def _importance_row(one: Importance) -> Row:
    return {"input": one.name, "loss": one.mean, "standard_deviation": one.deviation, "columns": len(one.columns)}


def _ablation_row(one: Ablation) -> Row:
    return {
        "word": one.word,
        "columns": list(one.shuffled.columns),
        "shuffled_loss": one.shuffled.mean,
        "standard_deviation": one.shuffled.deviation,
        "refit_loss": one.dropped,
    }
