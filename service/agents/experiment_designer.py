"""experiment_designer (tier 3): plans an experiment: groups, sample size, power, smallest effect, length, and who gets what."""

import re

import numpy as np

from service.agents.chart import Row, bar_chart, table
from service.agents.experiments.assignment import SEED, Assignment, draw, draw_pairs, order_regions, pair_regions
from service.agents.experiments.measures import build_up, season_swing
from service.agents.experiments.options import (
    baseline_options,
    cluster_options,
    crossover_total,
    holdout_options,
    plan_wedge,
    power_curve,
    without_pre_period,
)
from service.agents.experiments.plan import Plan, Sourced, make_plan
from service.agents.experiments.report import Context, metric_label, plural, risks, stopping_rule, write_evidence
from service.agents.experiments.request import Request, read_request
from service.agents.experiments.words import BUILD_UP_WORDS, SEASON_WORDS
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot
from service.contracts.dispatch import AgentDispatch

MOST_LISTED = 1_000
"""HCPs that are listed one by one; a larger draw is given by seed and digest."""
GUARDRAILS = {
    "trx": ["calls, e-mails and samples per HCP in both arms", "complaints and opt-outs"],
    "rate": ["opt-outs and complaints", "contacts per unit in both arms"],
}


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Plan the experiment that the question describes.

    Confidence is the mean trust in the plan's inputs (metric, baseline, effect, units, length and, with clusters, size and ICC): 1 for
    what the question gives or the data measure on the HCPs in question, 0.5 for a stand-in, 0 for an assumption. Inputs that the
    question asks for (the size, the smallest effect, the length) do not count.

    What the data do not have (a brand, districts, patients, open rates) does not end the planning; a caveat says what stands in.
    """
    request = read_request(dispatch, data)
    plan = make_plan(request, data)
    context = _context(plan, data)
    return Finding(
        primary_output=_output(context, data),
        confidence=float(np.mean(list(_trust(plan).values()))),
        evidence=write_evidence(context),
        caveats=_caveats(plan),
        visualizations=_charts(context),
        tables=_tables(context, data),
        model_used="statsmodels power, Hussey-Hughes, Lan-DeMets",
    )


def _context(plan: Plan, data: Snapshot) -> Context:
    request = plan.request
    mask, weeks = request.scope.mask, plan.weeks
    asks_length = request.decision == "duration" or re.search(BUILD_UP_WORDS, request.text) is not None
    past = weeks is not None and request.metric.kpi is not None and request.metric.kpi.name in {"trx", "nrx"} and asks_length
    wedge = plan_wedge(plan, data) if request.design == "stepped_wedge" else None
    regional = request.units.name == "region"
    return Context(
        plan=plan,
        assignment=_assign(plan, data),
        wedge=wedge,
        holdout=holdout_options(plan) if request.design == "holdout" else (),
        region_order=order_regions(request.scope.regions) if wedge and regional else (),
        region_pairs=pair_regions(data, mask, request.scope.regions) if regional and not wedge else (),
        build_up=build_up(data, mask, round(weeks.value)) if past and weeks else None,
        season=season_swing(data) if re.search(SEASON_WORDS, request.text) else None,
    )


def _assign(plan: Plan, data: Snapshot) -> Assignment | None:
    """Return the draw where the data have the units: HCPs. For other units the HCPs show the strata and the balance to aim at."""
    request = plan.request
    if request.units.name == "patient" or request.design == "stepped_wedge":
        return None
    mask = request.scope.mask
    if request.design == "matched":
        pairs = plan.used if not request.units.is_cluster else int(mask.sum()) // 2
        return draw_pairs(data, mask, pairs, ("control", "test"))
    names = _arm_names(plan)
    if request.units.is_cluster or request.units.name != "HCP":
        even = [int(mask.sum()) // plan.arms] * plan.arms
        return draw(data, mask, even, names)
    if request.design == "factorial":
        cell = min(-(-plan.used // 2), int(mask.sum()) // 4)
        return draw(data, mask, [cell] * 4, ("neither", "first only", "second only", "both"))
    return draw(data, mask, plan.sizes, names)


def _arm_names(plan: Plan) -> tuple[str, ...]:
    first = "holdout" if plan.request.design == "holdout" else "control"
    return (first, *(("test",) if plan.arms == 2 else tuple(f"test {at}" for at in range(1, plan.arms))))


def _trust(plan: Plan) -> dict[str, float]:
    request = plan.request
    trust = {"metric": (1.0 if request.metric.caveat is None else 0.5) if request.metric.named else 0.0, "baseline": plan.baseline.trust}
    if request.spread is not None:
        trust["baseline"] = 1.0
    if request.decision != "smallest_effect":
        trust["effect"] = plan.effect.trust
    if request.decision not in {"sample_size", "share"}:
        trust["units"] = plan.available.trust if plan.available else 0.0
    if request.decision != "duration" and plan.measures is not None and plan.weeks is not None:
        trust["weeks"] = plan.weeks.trust
    if plan.cluster_size is not None and plan.icc is not None:
        trust |= {"cluster_size": plan.cluster_size.trust, "icc": plan.icc.trust}
    return trust


def _output(context: Context, data: Snapshot) -> dict[str, object]:
    plan = context.plan
    request, comparison = plan.request, plan.comparison
    ratio = plan.effect.value / plan.baseline.value if request.spread is None and plan.baseline.value else None
    output: dict[str, object] = {
        "decision": request.decision,
        "design": request.design,
        "metric": request.metric.name,
        "metric_kind": "rate" if plan.is_rate else "mean",
        "scope": request.scope.label,
        "baseline": _sourced(plan.baseline) if request.spread is None else None,
        "standard_deviation": plan.measures.spread if plan.measures else plan.unit_spread,
        "residual_standard_deviation": plan.unit_spread,
        "effect": _sourced(plan.effect) | {"relative": ratio},
        "alpha": comparison.alpha * (plan.arms - 1),
        "alpha_per_comparison": comparison.alpha,
        "sides": comparison.sides,
        "target_power": comparison.power,
        "unit": request.units.name,
        "arms": plan.arms,
        "allocation_ratio": comparison.ratio,
        "available_per_arm": _sourced(plan.available),
        "needed_per_arm": plan.needed,
        "arm_sizes": dict(zip(_arm_names(plan), plan.sizes, strict=True)),
        "power": plan.power,
        "is_enough": plan.is_enough,
        "smallest_effect": plan.smallest,
        "weeks": _sourced(plan.weeks),
        "weeks_needed": plan.weeks_needed,
        "design_effect": comparison.design_effect,
        "cluster_size": _sourced(plan.cluster_size),
        "icc": _sourced(plan.icc),
        "enrol_per_arm": None if request.dropout is None or plan.needed is None else int(np.ceil(plan.needed / (1.0 - request.dropout))),
        "dropout": request.dropout,
        "success_metric": metric_label(plan),
        "stopping_rule": stopping_rule(plan),
        "guardrails": GUARDRAILS["rate" if plan.is_rate else "trx"],
        "risks": risks(plan),
        "input_trust": _trust(plan),
    }
    return output | _extras(context, data)


def _extras(context: Context, data: Snapshot) -> dict[str, object]:
    """Return the parts that only some plans have."""
    plan = context.plan
    extras: dict[str, object] = {}
    if plan.measures:
        extras["pre_period"] = {
            "correlation": plan.measures.correlation,
            "variance_removed": plan.measures.explained,
            "needed_without": without_pre_period(plan),
            "icc_measured": plan.measures.icc,
        }
    if plan.bounds:
        extras["looks"] = {"bounds": list(plan.bounds), "inflation": plan.comparison.inflation, "method": "O'Brien-Fleming by Lan-DeMets"}
    if plan.cluster_size and plan.cluster_size.source == "assumed":
        extras["by_cluster_size"] = [dict(row) for row in cluster_options(plan)]
    if plan.is_rate and plan.baseline.source == "assumed":
        extras["by_baseline"] = [dict(row) for row in baseline_options(plan)]
    if context.holdout:
        extras["holdout_options"] = [dict(row) for row in context.holdout]
    if context.wedge:
        wedge = context.wedge
        extras["stepped_wedge"] = {name: getattr(wedge, name) for name in wedge.__slots__} | {"least_p_value": wedge.least_p_value}
    if plan.request.design == "crossover":
        extras["crossover_total"] = crossover_total(plan)
    if context.region_order:
        extras["region_order"] = list(context.region_order)
    if context.region_pairs:
        extras["region_pairs"] = [{"control": first, "test": second} for first, second in context.region_pairs]
    if context.assignment:
        extras["assignment"] = _assignment_row(context.assignment, plan.request, data)
    return extras


def _assignment_row(drawn: Assignment, request: Request, data: Snapshot) -> dict[str, object]:
    ids = data.hcps["hcp_id"].to_numpy()
    listed = len(drawn.rows) <= MOST_LISTED and not request.units.is_cluster and request.units.name == "HCP"
    return {
        "seed": SEED,
        "unit": "HCP",
        "is_example": request.units.is_cluster or request.units.name != "HCP",
        "strata": [dict(row) for row in drawn.strata],
        "balance": [dict(row) for row in drawn.balance],
        "largest_standardised_difference": drawn.largest_difference,
        "pairs": len(drawn.pairs),
        "hcps": len(drawn.rows),
        "sha256": drawn.digest,
        "listed": [{"hcp_id": str(ids[row]), "arm": int(arm)} for row, arm in zip(drawn.rows, drawn.arm, strict=True)] if listed else None,
    }


def _sourced(value: Sourced | None) -> dict[str, object]:
    return {} if value is None else {"value": value.value, "source": value.source}


def _caveats(plan: Plan) -> list[str]:
    request = plan.request
    caveats = [*request.caveats, *([request.metric.caveat] if request.metric.caveat else [])]
    if plan.effect.source == "assumed":
        caveats.append("The effect that matters was not named; the plan assumes one (see `effect`): name yours, the size depends on it.")
    if plan.is_rate and plan.baseline.source == "assumed":
        caveats.append(f"The data have no {request.metric.name} and none was given; 50 % was taken, at which points are hardest to see.")
    if request.deadline is not None:
        caveats.append(
            f"From the data's last week, or the start that was named, it is {request.deadline[1]} whole weeks to {request.deadline[0]}."
        )
    if plan.weeks is not None and plan.weeks.source == "assumed":
        caveats.append(f"No length was named; {plan.weeks.value:.0f} weeks were taken.")
    if request.units.is_cluster and request.units.name != "region":
        caveats.append(
            f"The data have no {plural(request.units.name)}: none can be picked or paired here; HCPs and the four regions show strata "
            "and balance."
        )
    if plan.cluster_size is not None and plan.cluster_size.source != "given":
        how = "the HCPs of the data spread evenly" if plan.cluster_size.source == "stand-in" else f"{plan.cluster_size.source}"
        caveats.append(f"How many people a {request.units.name} has was not given; {plan.comparison.cluster_size} was taken ({how}).")
    if plan.icc is not None and plan.icc.source != "given":
        how = "the upper end of the 95 % interval of the ICC between regions" if plan.icc.source != "assumed" else "a common assumption"
        caveats.append(f"The ICC was not given; {plan.icc.value:.3f} was taken ({how}).")
    people = int(request.scope.mask.sum())
    if request.units.name == "HCP" and sum(plan.sizes) > people:
        caveats.append(
            f"The plan needs or names more HCPs than the {people:,} that the data have in {request.scope.label}; the draw shows these."
        )
    if request.units.name == "region" and request.units.total not in {None, len(request.scope.regions)}:
        caveats.append(f"The data have {len(request.scope.regions)} regions in {request.scope.label}: {', '.join(request.scope.regions)}.")
    if request.units.name == "patient":
        caveats.append("The data have no patients, only counts per HCP: nobody can be drawn here.")
    if request.non_inferiority:
        caveats.append(
            "Planned as non-inferiority: the effect is the margin, the test is one-sided, and the true difference is taken to be 0."
        )
    if request.design == "stepped_wedge":
        caveats.append(
            f"The wedge's power takes for granted that {plural(request.units.name)} differ by the same amount in all periods and that "
            "the effect is "
            "there at once; check both on the first steps."
        )
    if request.design == "matched":
        caveats.append("Power is that of the unpaired comparison with the pre-period taken out; pairing can only add to it.")
    return caveats


def _charts(context: Context) -> tuple[dict[str, object], ...]:
    plan = context.plan
    curve: list[Row] = [{"effect": f"{_number(row['effect']):.3g}", "power": row["power"]} for row in power_curve(plan)]
    charts = [
        bar_chart(
            "power_curve",
            f"Power by effect on {metric_label(plan)}, {plan.used:,} in the control arm",
            curve,
            value="power",
            label="effect",
        )
    ]
    if context.assignment and context.assignment.balance:
        charts.append(
            bar_chart(
                "balance",
                "Standardised mean difference between arms",
                context.assignment.balance,
                value="standardised_difference",
                label="covariate",
            )
        )
    return tuple(charts)


def _tables(context: Context, data: Snapshot) -> tuple[dict[str, object], ...]:
    drawn = context.assignment
    tables = [table("Power by effect", power_curve(context.plan))]
    if drawn is not None:
        tables.append(table("Strata", drawn.strata))
        if drawn.pairs:
            tables.append(table("Matched pairs", drawn.pairs[:MOST_LISTED]))
    if context.holdout:
        tables.append(table("Holdout shares", context.holdout))
    return tuple(tables)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
