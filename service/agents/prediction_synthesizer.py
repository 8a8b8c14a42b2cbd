"""prediction_synthesizer (tier 4): a KPI's next weeks with intervals, or an HCP's calibrated chance of a conversion."""

from dataclasses import dataclass
from datetime import timedelta

from service.agents.chart import Row, forecast_chart, table
from service.agents.finding import AgentFailure, Finding
from service.agents.forecast import Backtest, Forecast, backtest, forecast
from service.agents.hcp_outlook import predict_hcp
from service.agents.hcp_ranking import rank_hcps
from service.agents.horizon import LONGEST_HORIZON, Horizon, find_horizon
from service.agents.kpi import Kpi, normal_form
from service.agents.outlook_request import KpiWish, read_kpi_wish, read_ranking, refuse_patients_and_names
from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.scope import Scope, entity_values, find_hcp, question_of, quoted, resolve_kpi, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

DEFAULT_HORIZON = 8
SHOWN_HISTORY = 52
NEAR = 0.5
"""What an answer counts that only stands beside the question: a level where a plan was to be met, NRx for new starts."""


@dataclass(frozen=True, slots=True)
class _Prospect:
    """One KPI of one scope: what was seen, what is forecast, and how such forecasts did before."""

    kpi: Kpi
    scope: Scope
    horizon: Horizon
    series: Reals
    ahead: Forecast
    test: Backtest


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Predict: for an HCP id the probability of a conversion, for "who" a ranking of HCPs, otherwise the weekly KPI of the named scope.

    Raises:
        AgentFailure: The HCP, brand, region, KPI or period is not in the data, or a patient or a doctor's name is asked for.
    """
    row = find_hcp(dispatch, data)
    if row is not None:
        return predict_hcp(data, row, others_named=len(entity_values(dispatch, EntityType.HCP_ID)) > 1)
    if entity_values(dispatch, EntityType.PATIENT_ID):
        message = "The data have no patients, only HCPs; give an hcp_id (HCP-00001 and on) or a brand for a forecast."
        raise AgentFailure("missing_data", message)
    scope = resolve_scope(dispatch, data)
    refuse_patients_and_names(dispatch)
    ranking = read_ranking(dispatch, data)
    if ranking is None:
        return _predict_kpi(dispatch, data, scope)
    horizon, note = _horizon(dispatch, data)
    return rank_hcps(data, scope, ranking, horizon.asked if note is None or horizon.asked > horizon.weeks else None)


def _predict_kpi(dispatch: AgentDispatch, data: Snapshot, scope: Scope) -> Finding:
    """Confidence: precision at the middle of the horizon times coverage reached in the backtest over the nominal 90 % times skill.

    Precision is 1 less half the interval over the mean. Skill counts 1 when the model beats the naive rules, and the naive
    error over the model's error when it does not. All of it counts for as much as the forecast answers of what was asked (`nearness`):
    the part of the way ahead, and half where the question is about something beside it.
    """
    wish = read_kpi_wish(dispatch)
    kpi, kpi_caveat = resolve_kpi(dispatch, default="nrx" if wish.asks_starts else "trx")
    if kpi is None:
        raise AgentFailure("missing_data", "No KPI to forecast.")
    horizon, horizon_caveat = _horizon(dispatch, data)
    prospect = _look_ahead(data, scope, scope.mask, kpi, horizon)
    ahead, test = prospect.ahead, prospect.test
    stands_in = wish.asks_starts and kpi_caveat is not None
    if stands_in:
        kpi_caveat = f"New starts and patients are not counted in the data; {kpi.label}, first prescriptions, stand in for them."
    nearness = horizon.share * (NEAR if wish.asks_plan or stands_in else 1.0)
    caveats = [*scope.caveats, *(one for one in (kpi_caveat, horizon_caveat) if one), *_forecast_caveats(test, horizon, wish)]
    weeks = _future_weeks(data, kpi, ahead)
    each = {name: _each(data, prospect, name) for name in wish.each}
    title = f"{kpi.label}, {scope.label}: last year and {horizon.weeks} weeks ahead"
    return Finding(
        primary_output={
            "target": kpi.name,
            "scope": scope.label,
            "horizon_weeks": horizon.weeks,
            "interval_level": 0.9,
            "forecast": weeks,
            "mean_of_horizon": float(ahead.mean.mean()),
            "mean_of_last_weeks": float(prospect.series[-horizon.weeks :].mean()),
            "asked_window": _asked_window(data, prospect),
            "nearness": nearness,
            **{f"by_{name}": rows for name, rows in each.items()},
            "backtest": _backtest_output(test),
        },
        confidence=_confidence(ahead, test) * nearness,
        evidence=[*_lead(data, prospect, wish, each), *_forecast_evidence(prospect)],
        caveats=caveats,
        visualizations=(forecast_chart(title, _history(data, kpi, prospect.series) + weeks),),
        tables=(table("Forecast", weeks), *(table(f"Forecast by {name}", rows) for name, rows in each.items())),
        model_used="statsmodels OLS (trend, yearly cycle, step; BIC)",
    )


def _backtest_output(test: Backtest) -> dict[str, object]:
    return {
        "mean_absolute_error": test.model_error,
        "relative_error": test.relative_error,
        "naive_error": test.naive_error,
        "seasonal_naive_error": test.seasonal_error,
        "skill": test.skill,
        "inside_interval": test.inside,
        "points": test.points,
    }


def _look_ahead(data: Snapshot, scope: Scope, mask: Mask, kpi: Kpi, horizon: Horizon) -> _Prospect:
    series = kpi.series(data, mask)
    test = backtest(series, min(horizon.weeks, DEFAULT_HORIZON), data.programme_start)
    ahead = forecast(series, horizon.weeks, data.programme_start).widened(test.widening)
    return _Prospect(kpi, scope, horizon, series, ahead.clipped(0.0, 1.0 if kpi.denominator else float("inf")), test)


def _confidence(ahead: Forecast, test: Backtest) -> float:
    middle = len(ahead.mean) // 2
    precision = max(0.0, 1.0 - (ahead.high[middle] - ahead.low[middle]) / 2.0 / max(abs(ahead.mean[middle]), 1e-9))
    skill = min(1.0, min(test.naive_error, test.seasonal_error) / max(test.model_error, 1e-12))
    return float(precision * min(1.0, test.inside / 0.9) * skill)


def _each(data: Snapshot, whole: _Prospect, dimension: str) -> list[Row]:
    """Return one row a group of the scope: the last week of the horizon with its interval, and the mean of the last weeks seen."""
    rows: list[Row] = []
    for name in whole.scope.regions if dimension == "region" else whole.scope.brands:
        one = _look_ahead(data, whole.scope, whole.scope.mask & (data.labels(dimension) == name), whole.kpi, whole.horizon)
        parts = {"value": one.ahead.mean[-1], "low": one.ahead.low[-1], "high": one.ahead.high[-1], "now": one.series[-4:].mean()}
        rows.append({dimension: name, **{key: _rounded(whole.kpi, value) for key, value in parts.items()}})
    return rows


def _asked_window(data: Snapshot, prospect: _Prospect) -> Row:
    """Return the weeks that the question asks for; where some of them are over, what they brought is counted too."""
    horizon, ends = prospect.horizon, data.week_ends
    seen = [week for week, end in enumerate(ends) if horizon.begins is not None and end >= horizon.begins]
    values = [*(prospect.series[week] for week in seen), *prospect.ahead.mean[horizon.first :]]
    return {
        "from": (ends[seen[0]] if seen else ends[-1] + timedelta(weeks=horizon.first + 1)).isoformat(),
        "to": (ends[-1] + timedelta(weeks=horizon.weeks)).isoformat(),
        "weeks": len(values),
        "weeks_seen": len(seen),
        "mean": float(sum(values) / len(values)),
        "total": None if prospect.kpi.denominator else float(sum(values)),
    }


def _lead(data: Snapshot, prospect: _Prospect, wish: KpiWish, each: dict[str, list[Row]]) -> list[str]:
    """Return what answers the question's own words: its window, its groups, its scenarios."""
    kpi, window, last = prospect.kpi, _asked_window(data, prospect), len(prospect.ahead.mean) - 1
    sentences = []
    if prospect.horizon.begins is not None:
        seen = f", {window['weeks_seen']} of them already seen" if window["weeks_seen"] else ""
        total = "" if kpi.denominator else f", {kpi.write(float(str(window['total'])))} in all"
        sentences.append(
            f"{kpi.label[0].upper()}{kpi.label[1:]} of {prospect.scope.label} in the {window['weeks']} weeks to {window['to']}{seen}: "
            f"{kpi.write(float(str(window['mean'])))} a week on average{total}."
        )
    for name, rows in each.items():
        parts = "; ".join(f"{row[name]} {kpi.write(float(str(row['value'])))}" for row in rows)
        sentences.append(f"In the last week of the horizon, by {name}: {parts}.")
    if wish.wants_scenarios:
        worst, base, best = (kpi.write(float(part[last])) for part in (prospect.ahead.low, prospect.ahead.mean, prospect.ahead.high))
        sentences.append(
            f"In the last week of the horizon the low case is {worst}, the base case {base}, the high case {best}: 9 of 10 outcomes lie "
            "between."
        )
    return sentences


def _forecast_evidence(prospect: _Prospect) -> list[str]:
    kpi, label, series, ahead, test = prospect.kpi, prospect.scope.label, prospect.series, prospect.ahead, prospect.test
    horizon = len(ahead.mean)
    recent, coming = series[-horizon:].mean(), ahead.mean.mean()
    change = kpi.write(coming - recent, signed=True) if kpi.denominator else f"{100 * (coming / max(recent, 1e-9) - 1):+.1f} %"
    beaten = "the last week's value" if test.naive_error <= test.seasonal_error else "the same week a year before"
    naive = min(test.naive_error, test.seasonal_error)
    comparison = f"{abs(100 * test.skill):.0f} % {'below' if test.skill >= 0 else 'above'} that of {beaten}, {kpi.write_size(naive)}"
    return [
        f"{kpi.label[0].upper()}{kpi.label[1:]} of {label} should average {kpi.write(coming)} a week over the next {horizon} weeks, "
        f"{change} against the last {horizon}.",
        f"The last of these weeks should bring {kpi.write(ahead.mean[-1])} (90 % interval "
        f"{kpi.write_range(ahead.low[-1], ahead.high[-1])}).",
        f"Backtest on {test.points} earlier weeks: the mean error is {kpi.write_size(test.model_error)} ({100 * test.relative_error:.1f} "
        f"% of the level), {comparison}.",
        f"{100 * test.inside:.0f} % of those weeks lay inside the model's 90 % interval"
        + (f"; the interval was widened {test.widening:.2f} times to make up for it." if test.widening > 1.0 else "."),
    ]


def _forecast_caveats(test: Backtest, horizon: Horizon, wish: KpiWish) -> list[str]:
    caveats = ["The forecast assumes that the programmes go on as they are and that no new break comes."]
    if wish.asks_plan:
        caveats.append("The data have no plan or target, so whether it is met cannot be told; compare yours with the forecast.")
    if wish.unit is not None:
        caveats.append(f"The data count prescriptions and contacts, not {wish.unit}; the forecast is in their unit.")
    if test.skill < 0:
        caveats.append(f"In the backtest a naive rule was better: the model's error was {100 * -test.skill:.0f} % larger.")
    if horizon.weeks > DEFAULT_HORIZON:
        caveats.append(f"The backtest covers {DEFAULT_HORIZON} weeks ahead; beyond them the error is not measured.")
    return caveats


def _horizon(dispatch: AgentDispatch, data: Snapshot) -> tuple[Horizon, str | None]:
    said = entity_values(dispatch, EntityType.TIME_PERIOD)
    found = find_horizon(normal_form(" ".join((*said, question_of(dispatch)))), data.week_ends[-1])
    if found is None:
        default = Horizon(0, DEFAULT_HORIZON, DEFAULT_HORIZON)
        if said:
            return default, f"The period {quoted(said[0])} is not one to come; the forecast is for the next {DEFAULT_HORIZON} weeks."
        return default, f"No horizon was named; {DEFAULT_HORIZON} weeks were taken."
    if found.asked > found.weeks:
        return found, f"The forecast stops after {LONGEST_HORIZON} weeks; {found.asked} were asked for."
    return found, None


def _history(data: Snapshot, kpi: Kpi, series: Reals) -> list[Row]:
    shown = range(data.weeks - SHOWN_HISTORY, data.weeks)
    return [{"week_end": data.week_ends[week].isoformat(), "series": "observed", "value": _rounded(kpi, series[week])} for week in shown]


def _future_weeks(data: Snapshot, kpi: Kpi, ahead: Forecast) -> list[Row]:
    return [
        {
            "week_end": (data.week_ends[-1] + timedelta(weeks=week + 1)).isoformat(),
            "series": "forecast",
            "value": _rounded(kpi, ahead.mean[week]),
            "low": _rounded(kpi, ahead.low[week]),
            "high": _rounded(kpi, ahead.high[week]),
        }
        for week in range(len(ahead.mean))
    ]


def _rounded(kpi: Kpi, value: float) -> float:
    return round(float(value), 4 if kpi.denominator else 1)
