"""heterogeneous_optimizer (tier 2): how a programme's effect differs between subgroups, and who responds best and worst."""

import numpy as np

from service.agents.chart import Row, interval_chart, table
from service.agents.finding import AgentFailure, Finding
from service.agents.sample_data import Snapshot
from service.agents.subgroups.analysis import SMALLEST_GROUP, DimensionResult, analyse_dimensions, cross, smallest_arm
from service.agents.subgroups.dimensions import DIMENSIONS, SINGLE_DECILES, Dimension
from service.agents.subgroups.model import GroupEffect, Study, build_study, measure_group, measure_signals, null_chance, restrict
from service.agents.subgroups.ranking import FEWEST_SPLITS, MOST_SPLITS, rank_by_effect
from service.agents.subgroups.report import Analysis, write_caveats, write_evidence
from service.agents.subgroups.request import Request, read_request
from service.agents.subgroups.sorting import Sorting, sort_hcps
from service.contracts.dispatch import AgentDispatch

MS_PER_SPLIT = 100
"""A cautious estimate of what one random half, used both ways, costs on one busy core."""
SMALLEST_ARM = 40
"""Fewest HCPs on either side of the programme for which the models are fitted."""
MATERIAL_CHANGE = 0.10
"""An effect of this part of the mean outcome counts as material; the precision is judged against it, as in `causal_impact`."""


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Estimate how the named programme's effect differs along the named dimensions, all of them where none is named.

    Confidence is the product of four parts: precision (1 less the standard error of the spread between best and worst group over
    the larger of the spread and a material change), credence (where a difference is found: 1 less the least chance that it is
    none, see `null_chance`), overlap (the share of HCPs that could have been in either group), and coverage (the share of what
    the question names that the data have; a stand-in for a programme counts half).

    Raises:
        AgentFailure: Programme, outcome, brand, region or specialty are not in the data, or too few HCPs are left.
    """
    request = read_request(dispatch, data)
    analysis = _analyse(dispatch, data, request)
    return Finding(
        primary_output=_output(analysis),
        confidence=_confidence(analysis),
        evidence=write_evidence(analysis),
        caveats=write_caveats(dispatch, analysis),
        visualizations=_charts(analysis),
        tables=_tables(analysis),
        model_used="cross-fitted AIPW, Cochran Q with Holm" + (", DR-learner with held-out GATES" if analysis.sorting else ""),
    )


def _analyse(dispatch: AgentDispatch, data: Snapshot, request: Request) -> Analysis:
    # The models of chance and outcome are fitted on all HCPs of the brands: in one region alone they would be unsteady.
    brands = np.isin(data.labels("brand"), request.scope.brands)
    everywhere = build_study(data, brands, request.treatment.programme.name, request.kpi)
    _check_size(request, everywhere)
    study, signals = restrict(everywhere, measure_signals(everywhere), request.scope.mask)
    _check_size(request, study)
    asked, screened = _choose(data, study, request)
    results, untested = analyse_dimensions(data, study, signals, asked)
    if not results:
        names = ", ".join(dimension.label for dimension, _ in untested)
        raise AgentFailure(
            "insufficient_data",
            f"{request.scope.label} cannot be split by {names}: fewer than two groups have {SMALLEST_GROUP} HCPs on either side.",
        )
    pair = _pair(request, results, screened)
    cells, cell_test = cross(data, study, signals, *pair) if pair else ((), None)
    sorting = None
    if screened or request.sorts_hcps:
        budget = dispatch.payload.constraints.max_latency_ms
        splits = int(np.clip(budget // (2 * MS_PER_SPLIT), FEWEST_SPLITS, MOST_SPLITS))
        sorting = sort_hcps(data, study, signals, rank_by_effect(data, study, splits))
    start = data.programme_start
    calls = data.weekly["calls"][start:][:, study.rows].mean(axis=0) * 52.0 / 12.0
    return Analysis(
        request=request,
        overall=measure_group(study, signals, np.ones(len(study.rows), dtype=bool), "overall"),
        mean_outcome=float(study.outcome.mean()),
        overlap=signals.overlap,
        results=results,
        untested=untested,
        screened=screened,
        crossed=pair,
        cells=cells,
        cell_test=cell_test,
        sorting=sorting,
        calls_a_month=(float(calls[study.treated].mean()), float(calls[~study.treated].mean())),
        most_splits=MOST_SPLITS,
    )


def _check_size(request: Request, study: Study) -> None:
    """Refuse a study with too few HCPs on either side."""
    treated = int(study.treated.sum())
    if min(treated, len(study.rows) - treated) < SMALLEST_ARM:
        label = request.treatment.programme.label
        raise AgentFailure(
            "insufficient_data",
            f"{request.scope.label} has too few HCPs to compare subgroups: {treated} in the {label} and {len(study.rows) - treated} "
            f"outside it; {SMALLEST_ARM} are needed in each.",
        )


def _choose(data: Snapshot, study: Study, request: Request) -> tuple[list[Dimension], bool]:
    """Return the dimensions to look at, and whether that is a screening of all, because the question names none."""
    names = list(request.dimensions) or list(dict.fromkeys(name for _, nearest in request.absent for name in nearest))
    several = {name for name in ("brand", "region", "specialty") if len(set(data.labels(name)[study.rows].tolist())) > 1}
    screened = not names
    if screened:
        names = [name for name in DIMENSIONS if name not in {"brand", "region", "specialty"} - several]
    chosen = [DIMENSIONS[name] for name in names]
    if request.single_deciles and "decile" in names and smallest_arm(data, study, SINGLE_DECILES) >= SMALLEST_GROUP:
        chosen[names.index("decile")] = SINGLE_DECILES
    return chosen, screened


def _pair(request: Request, results: list[DimensionResult], screened: bool) -> tuple[Dimension, Dimension] | None:
    """Return the two dimensions to cross: those named, or where brands differ, the brand with the leading dimension."""
    if not screened and len(results) > 1:
        first, second = results[0].dimension, results[1].dimension
        return (first, second) if first.name != second.name else None
    leading = min((one for one in results if one.dimension.name != "brand" and not one.dimension.nested), key=_p, default=None)
    if leading is None or len(request.scope.brands) < 2:
        return None
    return DIMENSIONS["brand"], leading.dimension


def _p(result: DimensionResult) -> float:
    return result.test.p_value


def _confidence(analysis: Analysis) -> float:
    leading = analysis.leading
    yardstick = max(leading.spread, MATERIAL_CHANGE * abs(analysis.mean_outcome), 1e-12)
    precision = max(0.0, 1.0 - leading.spread_error / yardstick)
    credence = 1.0 - null_chance(leading.p_adjusted) if leading.differs else 1.0
    return precision * credence * analysis.overlap * analysis.request.coverage


def _output(analysis: Analysis) -> dict[str, object]:
    request, overall = analysis.request, analysis.overall
    leading = analysis.leading
    output: dict[str, object] = {
        "treatment": request.treatment.asked,
        "measured_treatment": request.treatment.programme.name,
        "is_stand_in": request.treatment.is_stand_in,
        "outcome": request.outcome_name,
        "measured_outcome": request.kpi.name,
        "scope": request.scope.label,
        "overall_effect": _group_row(overall),
        "screened": analysis.screened,
        "asked_dimensions": list(request.dimensions),
        "absent_dimensions": [{"asked": name, "nearest": list(nearest)} for name, nearest in request.absent],
        "dimensions": [_dimension_row(one) for one in analysis.results],
        "differs_by": [one.dimension.name for one in analysis.results if one.differs],
        "leading_dimension": leading.dimension.name,
        "best_responders": _group_row(leading.best) if leading.differs else None,
        "worst_responders": _group_row(leading.worst) if leading.differs else None,
        "harmed_groups": [_group_row(one) for one in analysis.harmed],
        "correction": "Holm",
    }
    if analysis.crossed and analysis.cell_test:
        output["crossed"] = {
            "dimensions": [one.name for one in analysis.crossed],
            "p_value": analysis.cell_test.p_value,
            "cells": [_group_row(one) for one in analysis.cells],
        }
    if analysis.sorting:
        output["ranking"] = _ranking_row(analysis.sorting)
    return output


def _dimension_row(result: DimensionResult) -> dict[str, object]:
    extra = zip(result.groups, result.shrunken, result.chance_best, result.chance_worst, strict=True)
    ranked = sorted(extra, key=lambda one: -one[0].value)
    return {
        "dimension": result.dimension.name,
        "groups": [
            {"rank": rank, **_group_row(group), "shrunken_effect": shrunken, "chance_best": best, "chance_worst": worst}
            for rank, (group, shrunken, best, worst) in enumerate(ranked, start=1)
        ],
        "test": {
            "method": "Cochran Q" + (" within brands" if result.dimension.nested else ""),
            "statistic": result.test.statistic,
            "degrees_of_freedom": result.test.degrees,
            "p_value": result.test.p_value,
            "p_adjusted": result.p_adjusted,
            "i_squared": result.test.i_squared,
        },
        "differs": result.differs,
        "spread": result.spread,
        "spread_interval": [result.spread - 1.96 * result.spread_error, result.spread + 1.96 * result.spread_error],
        "too_small": list(result.too_small),
    }


def _group_row(group: GroupEffect) -> dict[str, object]:
    return {
        "group": group.group,
        "effect": group.value,
        "confidence_interval": [group.low, group.high],
        "p_value": group.p_value,
        "relative_effect": group.relative,
        "n": group.size,
        "n_treated": group.treated,
    }


def _ranking_row(sorting: Sorting) -> dict[str, object]:
    ranking = sorting.ranking
    return {
        "is_real": ranking.is_real,
        "p_value": ranking.p_value,
        "slope": ranking.slope,
        "qini": ranking.qini,
        "qini_p_value": ranking.qini_p_value,
        "quarters": [{"quarter": one.rank + 1, "effect": one.value, "low": one.low, "high": one.high} for one in ranking.quarters],
        "classes": dict(sorting.classes),
        "profile": [dict(one) for one in sorting.profile],
        "splits": ranking.splits,
    }


def _charts(analysis: Analysis) -> tuple[dict[str, object], ...]:
    kpi, label = analysis.request.kpi, analysis.request.treatment.programme.label
    title = f"Effect of the {label} on {kpi.label} by subgroup, {analysis.request.scope.label}"
    rows: list[Row] = [_point("overall", analysis.overall)]
    rows += [_point(f"{result.dimension.label}: {one.group}", one) for result in analysis.results for one in result.groups]
    charts = [interval_chart("subgroup_effects", title, rows, label="group", value="effect")]
    if analysis.cells:
        names = " and ".join(one.label for one in analysis.crossed or ())
        cells = [_point(one.group, one) for one in analysis.cells]
        charts.append(interval_chart("crossed_effects", f"Effect by {names}", cells, label="group", value="effect"))
    if analysis.sorting:
        quarters: list[Row] = [
            {"group": f"quarter {one.rank + 1}", "effect": one.value, "low": one.low, "high": one.high}
            for one in analysis.sorting.ranking.quarters
        ]
        charts.append(
            interval_chart("held_out_quarters", "Held-out effect by quarter of predicted effect", quarters, label="group", value="effect")
        )
    return tuple(charts)


def _point(name: str, group: GroupEffect) -> Row:
    return {"group": name, "effect": group.value, "low": group.low, "high": group.high}


def _tables(analysis: Analysis) -> tuple[dict[str, object], ...]:
    rows = [
        {"dimension": result.dimension.label, **{key: value for key, value in _group_row(one).items() if key != "confidence_interval"},
         "low": one.low, "high": one.high, "p_heterogeneity": result.p_adjusted}
        for result in analysis.results for one in result.groups
    ]  # fmt: skip
    tables = [table("Effect by subgroup", rows)]
    if analysis.sorting:
        tables.append(table("Who is in which quarter of predicted effect", analysis.sorting.profile))
    return tuple(tables)
