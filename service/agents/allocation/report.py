"""A plan in words, rows and charts. It computes nothing but differences and per-unit numbers."""

from collections.abc import Sequence

import numpy as np

from service.agents.allocation.channel_data import TIER_DECILES, UNIT_COST, UNIT_NAME
from service.agents.allocation.outcome import Outcome, marginal_of
from service.agents.chart import Row, Spec, bar_chart, interval_chart, table
from service.agents.sample_data import Mask, Snapshot

CURVE_POINTS = 13
SHOWN_GROUPS = 6
PER_HCP = {"calls", "emails", "samples"}
_WORDS = {"trx": "TRx", "nrx": "NRx", "profit": "k$ of margin"}


def write_amount(outcome: Outcome, weekly: float, *, signed: bool = False) -> str:
    """Write a spending of k$ a week as what it is over the horizon: money, or units."""
    setting = outcome.setting
    value = weekly * setting.units_per_weekly_k
    sign = "+" if signed else ""
    if setting.unit_name == "k$":
        lead = "-" if value < 0 else sign
        size = abs(value)
        return f"{lead}${size / 1000:,.2f}M" if size >= 1000 else f"{lead}${size:,.0f}k"
    places = 1 if setting.unit_name in {"reps", "events"} and not setting.whole else 0
    return f"{round(value, places) + 0.0:{sign},.{places}f} {setting.unit_name}"


def goal_word(outcome: Outcome) -> str:
    """Return what is maximized."""
    return _WORDS[outcome.setting.objective]


def group_rows(outcome: Outcome, split: str, data: Snapshot) -> list[Row]:
    """Return one row a group: amounts over the horizon, returns over the horizon, the next k$'s return, the saturation point."""
    setting = outcome.setting
    names = setting.group_names(split)
    rows: list[Row] = []
    for name in dict.fromkeys(names.tolist()):
        chosen = names == name
        scale = setting.units_per_weekly_k
        today, given = float(setting.lines.current[chosen].sum()), float(outcome.spend[chosen].sum())
        row: dict[str, object] = {
            "group": name,
            "current": round(today * scale, 2),
            "recommended": round(given * scale, 2),
            "change": round((given - today) * scale, 2),
            "current_return": round(_returned(outcome, chosen, setting.lines.current), 1),
            "recommended_return": round(_returned(outcome, chosen, outcome.spend), 1),
            "marginal_now": round(marginal_of(setting, chosen, setting.lines.current), 4),
            "marginal_recommended": round(marginal_of(setting, chosen, outcome.spend), 4),
            "saturation_k_per_week": round(float(setting.lines.curves.part(chosen).saturation().sum()), 1),
        }
        rows.append(row | _per_hcp(outcome, split, name, chosen, data))
    return sorted(rows, key=lambda row: -float(str(row["recommended"])))


def line_rows(outcome: Outcome) -> list[Row]:
    """Return one row a line, in k$ a week."""
    setting, lines = outcome.setting, outcome.setting.lines
    marginal = setting.problem.weight * lines.curves.marginal(outcome.spend)
    return [
        {
            "brand": str(lines.brand[at]),
            setting.by: str(lines.group[at]),
            "channel": str(lines.channel[at]),
            "current_k_per_week": round(float(lines.current[at]), 3),
            "recommended_k_per_week": round(float(outcome.spend[at]), 3),
            "lowest_k_per_week": round(float(setting.problem.low[at]), 3),
            "highest_k_per_week": round(float(setting.problem.high[at]), 3),
            "marginal_return": round(float(marginal[at]), 4),
        }
        for at in range(len(outcome.spend))
    ]


def curve_rows(outcome: Outcome, split: str) -> list[Row]:
    """Return the weekly return and the next k$'s return of each group at 0 to 2.4 times today's spending."""
    setting = outcome.setting
    names = setting.group_names(split)
    rows: list[Row] = []
    for name in dict.fromkeys(names.tolist()):
        chosen = names == name
        for step in range(CURVE_POINTS):
            spend = setting.lines.current * step / 5.0
            rows.append(
                {
                    "group": name,
                    "k_per_week": round(float(spend[chosen].sum()), 2),
                    "return_per_week": round(_returned(outcome, chosen, spend) / setting.weeks, 2),
                    "marginal_return": round(marginal_of(setting, chosen, spend), 4),
                }
            )
    return rows


def cut_order(outcome: Outcome, split: str) -> list[Row]:
    """Return the groups with the lowest return of the last k$ first: where a cut costs least."""
    setting = outcome.setting
    names = setting.group_names(split)
    found: list[tuple[float, str]] = [
        (marginal_of(setting, names == name, setting.lines.current), name) for name in dict.fromkeys(names.tolist())
    ]
    return [{"group": name, "lost_per_k": round(value, 4)} for value, name in sorted(found)]


def evidence(outcome: Outcome, split: str, label: str, rows: Sequence[Row], *, is_change: bool) -> list[str]:
    """Return the sentences; the first answers the question: the split, or with `is_change` what changes."""
    weeks, goal = outcome.setting.weeks, goal_word(outcome)
    sentences = [_change_sentence(outcome, label, rows)] if is_change else []
    sentences += [_split_sentence(outcome, label, rows), _gain_sentence(outcome)]
    changes = _changes(outcome, rows)
    if changes and not is_change:
        sentences.append(f"Against today: {changes}.")
    sentences.append(_marginal_sentence(outcome, split))
    sentences.append(
        "80 % of the most that can be reached comes at a weekly spending of "
        + ", ".join(f"${float(str(row['saturation_k_per_week'])):,.1f}k for {channel_name(row['group'])}" for row in rows[:SHOWN_GROUPS])
        + "."
    )
    explained = f"the curves explain {100 * outcome.fit_quality:.0f} % of the variance of the measured effects"
    if outcome.confirmed is None or not outcome.has_choice:
        return [*sentences, f"{explained[0].upper()}{explained[1:]}."]
    confirmed = f"the gain is {weeks * outcome.confirmed:,.0f} {goal}"
    return [*sentences, f"Split by curves of one half of the weeks and judged by the other half, {confirmed}; {explained}."]


def _split_sentence(outcome: Outcome, label: str, rows: Sequence[Row]) -> str:
    weeks, low, high = outcome.setting.weeks, *outcome.returns_interval
    shares = ", ".join(f"{channel_name(row['group'])} {write_amount(outcome, _weekly(outcome, row))}" for row in rows[:SHOWN_GROUPS])
    total = write_amount(outcome, float(outcome.spend.sum()))
    return (
        f"Best split of {total} over {weeks:.0f} weeks ({label}): {shares}; expected are {weeks * outcome.returns:,.0f} "
        f"{goal_word(outcome)} (95 % interval {weeks * low:,.0f} to {weeks * high:,.0f})."
    )


def _change_sentence(outcome: Outcome, label: str, rows: Sequence[Row]) -> str:
    weeks = outcome.setting.weeks
    step = float(outcome.spend.sum() - outcome.setting.lines.current.sum())
    effect = weeks * (outcome.returns - outcome.today_returns)
    lead = f"A cut of {write_amount(outcome, -step)}" if step < 0 else f"A further {write_amount(outcome, step)}"
    return (
        f"{lead} over {weeks:.0f} weeks ({label}) {'costs least' if step < 0 else 'brings most'} so: {_changes(outcome, rows)}; it "
        f"changes {goal_word(outcome)} by {effect:+,.0f} ({100 * effect / max(weeks * outcome.today_returns, 1e-9):+.1f} %)."
    )


def _gain_sentence(outcome: Outcome) -> str:
    weeks, goal = outcome.setting.weeks, goal_word(outcome)
    now = write_amount(outcome, float(outcome.setting.lines.current.sum()))
    today = f"Today these lines take {now} in {weeks:.0f} weeks and bring {weeks * outcome.today_returns:,.0f} {goal}"
    if not outcome.has_choice:
        return f"{today}; within this question there is nothing to move."
    low, high = (weeks * value for value in outcome.gain_interval)
    gain = (
        f"better by {weeks * outcome.gain:,.0f} (95 % interval {low:,.0f} to {high:,.0f}), in {100 * outcome.share_better:.1f} % of the "
        "replicates."
    )
    if outcome.setting.problem.priced:
        net = weeks * (outcome.yardstick_returns - float(outcome.yardstick.sum()))
        return f"{today}, {net:,.0f} after their cost; the recommended split brings {net + weeks * outcome.gain:,.0f} after cost, {gain}"
    return f"{today}; today's split of the same total would bring {weeks * outcome.yardstick_returns:,.0f}. The recommended one is {gain}"


def _changes(outcome: Outcome, rows: Sequence[Row]) -> str:
    moved = sorted((row for row in rows if row["change"] != 0), key=lambda row: float(str(row["change"])))
    return "; ".join(f"{channel_name(row['group'])} {write_amount(outcome, _weekly(outcome, row, 'change'), signed=True)}" for row in moved)


def charts(outcome: Outcome, split: str, rows: Sequence[Row]) -> tuple[Spec, ...]:
    """Return charts of the split and of the curves."""
    setting = outcome.setting
    bars: list[Row] = []
    for row in rows:
        bars += [{"group": f"{row['group']}, {plan}", "plan": plan, "amount": row[plan]} for plan in ("current", "recommended")]
    curve: Spec = bar_chart("response_curves", "", curve_rows(outcome, split), value="return_per_week", label="group")
    curve["title"] = f"Response curves ({goal_word(outcome)} a week by k$ a week)"
    curve["mark"] = {"type": "line", "tooltip": True, "point": True}
    curve["encoding"] = {
        "x": {"field": "k_per_week", "type": "quantitative", "title": "k$ a week"},
        "y": {"field": "return_per_week", "type": "quantitative", "title": f"{goal_word(outcome)} a week"},
        "color": {"field": "group", "type": "nominal", "title": split},
    }
    title = f"Today and recommended ({setting.unit_name}, {setting.weeks:.0f} weeks)"
    low, high = (setting.weeks * value for value in outcome.gain_interval)
    gain: list[Row] = [{"plan": "gain over today's split", "gain": setting.weeks * outcome.gain, "low": low, "high": high}]
    return (
        bar_chart("allocation", title, bars, value="amount", label="group", color="plan"),
        curve,
        interval_chart("gain", f"Gain in {goal_word(outcome)}", gain, label="plan", value="gain"),
    )


def tables(outcome: Outcome, split: str, rows: Sequence[Row], steps: list[tuple[float, float, float]]) -> tuple[Spec, ...]:
    """Return the tables: the split, its lines, the curves, and the return at other totals."""
    scale, weeks = outcome.setting.units_per_weekly_k, outcome.setting.weeks
    other: list[Row] = [
        {"part_of_total": part, "total": round(total * scale, 1), "expected_return": round(value * weeks, 1)}
        for part, total, value in steps
    ]
    found = [
        table(f"Split by {split}", rows),
        table("Lines (k$ a week)", line_rows(outcome)),
        table("Response curves", curve_rows(outcome, split)),
    ]
    return (*found, table("Return at other totals", other)) if other else tuple(found)


def _marginal_sentence(outcome: Outcome, split: str) -> str:
    setting, goal = outcome.setting, goal_word(outcome)
    order = cut_order(outcome, split)
    inside = (outcome.spend > setting.problem.low + 1e-6) & (outcome.spend < setting.problem.high - 1e-6)
    marginal = (setting.problem.weight * setting.lines.curves.marginal(outcome.spend))[inside]
    listed = ", ".join(f"{channel_name(row['group'])} {float(str(row['lost_per_k'])):.2f}" for row in order[:SHOWN_GROUPS])
    sentence = f"Cut first where the last $1,000 brings least today ({goal}): {listed}"
    if not len(marginal):
        return f"{sentence}."
    spread = (
        f"{np.median(marginal):.2f}" if np.ptp(marginal) < 0.02 * np.median(marginal) else f"{marginal.min():.2f} to {marginal.max():.2f}"
    )
    return f"{sentence}; at the recommended split it brings {spread} in every line that can still move."


def _per_hcp(outcome: Outcome, split: str, name: str, chosen: Mask, data: Snapshot) -> dict[str, object]:
    """Return visits, e-mails or boxes per HCP and month, today and recommended, for a group of one such channel."""
    lines = outcome.setting.lines
    channels = set(lines.channel[chosen].tolist())
    if len(channels) != 1 or not channels <= PER_HCP or split == "brand":
        return {}
    mask = np.isin(data.labels("brand"), np.unique(lines.brand[chosen]))
    row: dict[str, object] = {}
    if split == "tier":
        first, last = TIER_DECILES[name]
        mask &= (data.column("decile") >= first) & (data.column("decile") <= last)
        row["deciles"] = f"{first} to {last}"
    elif outcome.setting.by == "region":
        mask &= np.isin(data.labels("region"), np.unique(lines.group[chosen]))
    channel = channels.pop()
    per_k = 52.0 / 12.0 / UNIT_COST[channel] / max(int(mask.sum()), 1)
    return row | {
        "hcps": int(mask.sum()),
        "per_hcp_unit": UNIT_NAME[channel],
        "current_per_hcp_month": round(float(lines.current[chosen].sum()) * per_k, 2),
        "recommended_per_hcp_month": round(float(outcome.spend[chosen].sum()) * per_k, 2),
    }


def _returned(outcome: Outcome, chosen: Mask, spend: np.ndarray) -> float:
    setting = outcome.setting
    return setting.weeks * float((setting.problem.weight * setting.lines.curves.value(spend))[chosen].sum())


def _weekly(outcome: Outcome, row: Row, key: str = "recommended") -> float:
    return float(str(row[key])) / outcome.setting.units_per_weekly_k


def channel_name(group: object) -> str:
    """Return a group's name as it stands in a sentence."""
    text = str(group)
    return f"tier {text}" if text in TIER_DECILES else UNIT_NAME[text] if text == "emails" else text.replace("_", " ")
