"""resource_optimizer (tier 4): the split of a budget, of visits, events, samples or people that brings most, by fitted response curves."""

import re

import numpy as np

from service.agents.allocation.channel_data import CHANNELS, MARGIN
from service.agents.allocation.outcome import Outcome, evaluate, frontier, switch_point
from service.agents.allocation.plan import Setting, lay_out
from service.agents.allocation.report import (
    channel_name,
    charts,
    cut_order,
    evidence,
    goal_word,
    group_rows,
    line_rows,
    tables,
    write_amount,
)
from service.agents.allocation.request import BudgetRequest
from service.agents.allocation.scope import Asked, resolve_request
from service.agents.allocation.words import STAND_INS
from service.agents.chart import Row
from service.agents.finding import Finding
from service.agents.sample_data import Snapshot
from service.agents.scope import quoted
from service.contracts.dispatch import AgentDispatch

_HOW_OFTEN = re.compile(r"\b(?:touches|frequency|often|how many times|per (?:target|doctor|doc|hcp|physician|account|customer))\b")
QUICK_BELOW_MS = 1500
"""With less time than this the check on the other half of the weeks and the return at other totals are left out."""


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Split what the question names over channels, regions, tiers or brands for the most TRx, NRx or margin.

    Confidence is the share of replicates of the fitted curves in which the split beats today's, times the share of variance that the
    curves explain, times the part of the gain that the weeks not used for the fit confirm (half of it at least).

    Raises:
        AgentFailure: A brand or region is not in the data, the thing to be split is not, or the limits leave no split.
    """
    asked = resolve_request(dispatch, data)
    setting = lay_out(asked.request, asked.scope, data)
    quick = dispatch.payload.constraints.max_latency_ms < QUICK_BELOW_MS
    outcome = evaluate(setting, quick=quick)
    split = asked.request.split
    rows = group_rows(outcome, split, data)
    steps = [] if quick or setting.whole or asked.request.mode == "size" else frontier(setting)
    switches = _switches(setting, asked.request.channels)
    sentences = evidence(outcome, split, asked.scope.label, rows, is_change=asked.request.mode in {"change", "ratio"})
    sentences += [str(one["sentence"]) for one in switches]
    sentences += _per_hcp_sentences(asked, rows)
    caveats = [*asked.scope.caveats, *asked.notes, *_caveats(asked, outcome), *setting.notes]
    return Finding(
        primary_output=_output(asked, outcome, rows, switches),
        confidence=outcome.confidence,
        evidence=sentences,
        caveats=caveats + (["Time was short: the check on the other half of the weeks was left out."] if quick else []),
        visualizations=charts(outcome, split, rows),
        tables=tables(outcome, split, rows, steps),
        model_used="Hill curves (least squares); dynamic programming and water-filling",
    )


def _output(asked: Asked, outcome: Outcome, rows: list[Row], switches: list[Row]) -> dict[str, object]:
    setting, scale = outcome.setting, outcome.setting.units_per_weekly_k
    given = float(outcome.spend.sum())
    wanted = setting.problem.total if asked.request.mode != "size" else given
    return {
        "scope": asked.scope.label,
        "brands": list(asked.scope.brands),
        "mode": asked.request.mode,
        "split_by": asked.request.split,
        "unit": setting.unit_name,
        "unit_cost_k": None if setting.unit_name == "k$" else setting.unit_cost,
        "weeks": setting.weeks,
        "objective": goal_word(outcome),
        "total": {
            "current": float(setting.lines.current.sum()) * scale,
            "available": wanted * scale,
            "recommended": given * scale,
            "not_placed": max(0.0, wanted - given) * scale,
        },
        "expected_return": {
            "current": setting.weeks * outcome.today_returns,
            "current_split_same_total": setting.weeks * outcome.yardstick_returns,
            "recommended": setting.weeks * outcome.returns,
            "interval": [setting.weeks * bound for bound in outcome.returns_interval],
        },
        "gain": {
            "value": setting.weeks * outcome.gain,
            "interval": [setting.weeks * bound for bound in outcome.gain_interval],
            "share_of_replicates_better": outcome.share_better,
            "confirmed_on_other_weeks": None if outcome.confirmed is None else setting.weeks * outcome.confirmed,
        },
        "groups": rows,
        "cut_first": cut_order(outcome, asked.request.split),
        "switch_points": [{key: value for key, value in one.items() if key != "sentence"} for one in switches],
        "lines": line_rows(outcome),
    }


def _switches(setting: Setting, channels: tuple[str, ...]) -> list[Row]:
    """Return, where the question is about two channels, at what weekly spending of one the next k$ belongs into the other."""
    present = [name for name in channels if (setting.lines.channel == name).any()]
    if len(present) != 2:
        return []
    found: list[Row] = []
    for first, second in (present, present[::-1]):
        masks = (setting.lines.channel == first, setting.lines.channel == second)
        spend = switch_point(setting, *masks)
        today, names = float(setting.lines.current[masks[0]].sum()), (channel_name(first), channel_name(second))
        sentence = (
            f"With {names[1]} as today, {names[0]} is the better place for the next dollar up to ${spend:,.1f}k a week (today "
            f"${today:,.1f}k)."
            if spend is not None
            else f"With {names[1]} as today, {names[0]} never returns as much as {names[1]} does."
        )
        found.append({"from": first, "to": second, "k_per_week": spend, "current_k_per_week": today, "sentence": sentence})
    return found


def _per_hcp_sentences(asked: Asked, rows: list[Row]) -> list[str]:
    """Return how often an HCP is reached, where the question is about that."""
    counted = [row for row in rows if "hcps" in row]
    if not counted or not (asked.request.split == "tier" or _HOW_OFTEN.search(asked.words)):
        return []
    listed = "; ".join(
        f"{channel_name(row['group'])} ({row['hcps']} HCPs) {row['recommended_per_hcp_month']} {row['per_hcp_unit']} instead of "
        f"{row['current_per_hcp_month']}"
        for row in counted
    )
    return [f"Per HCP and month: {listed}."]


def _caveats(asked: Asked, outcome: Outcome) -> list[str]:
    request, setting = asked.request, outcome.setting
    caveats = [*_absence_caveats(request)]
    if setting.weeks_assumed:
        caveats.append(f"No period was named; {setting.weeks:.0f} weeks were taken.")
    if not request.objective:
        aim = "margin less spending" if setting.objective == "profit" else "TRx"
        caveats.append(f"No aim was named; the most {aim} was taken.")
    if request.mode == "flat" and not request.wants_flat:
        caveats.append(f"No amount was named; today's total of {write_amount(outcome, float(setting.lines.current.sum()))} was split.")
    left = setting.problem.total - float(outcome.spend.sum())
    if request.mode != "size" and left > 1e-3 * setting.problem.total:
        reason = "its next dollar would bring less than a dollar" if setting.problem.priced else "no line takes more than was ever tried"
        caveats.append(f"{write_amount(outcome, left)} of the total are not placed: {reason}.")
    elif np.any(outcome.spend > 0.999 * setting.lines.largest_tried):
        caveats.append("Some lines stand at the most that the experiment ever tried; beyond it nothing is measured.")
    if setting.objective == "nrx":
        caveats.append("The experiment measured TRx; NRx follow from the share of NRx in the TRx of each brand and region.")
    if setting.objective == "profit":
        margins = ", ".join(f"{brand} ${1000 * value:,.0f}" for brand, value in MARGIN.items() if brand in asked.scope.brands)
        caveats.append(f"Margin before promotion for one TRx: {margins}.")
    elif len(asked.scope.brands) > 1:
        caveats.append("A prescription of one brand counts as much as one of another.")
    caveats.append(
        "The curves come from an experiment over 52 weeks; spending is taken as even over the weeks, without carry-over from week to "
        "week and without one channel helping another."
    )
    return caveats


def _absence_caveats(request: BudgetRequest) -> list[str]:
    caveats = []
    if request.absent:
        named = ", ".join(quoted(one) for one in request.absent)
        caveats.append(f"The data have nothing on {named}; the split is over what is measured: {', '.join(request.channels or CHANNELS)}.")
    if request.absent_places:
        named = ", ".join(quoted(one) for one in request.absent_places)
        caveats.append(f"The data have four regions and three tiers of HCPs, no {named}; the nearest of these is shown.")
    caveats += [f"Nothing measures {quoted(one)}; it is not part of the aim." for one in request.unmeasured]
    caveats += [f"{quoted(one)} is counted as {STAND_INS[one]}." for one in request.stand_ins]
    if request.rate is not None and request.unit != "reps":
        caveats.append(f"The rate of {request.rate.said} a {request.rate.per} was not used: how many people it holds for is not said.")
    return caveats
