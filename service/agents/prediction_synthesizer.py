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


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Predict: for an HCP id the probability of a conversion, otherwise the weekly KPI of the named brands and regions.

    Raises:
        AgentFailure: The HCP, brand, region, KPI or period is not in the data, or a patient is asked for.
    """
    row = find_hcp(dispatch, data)
    if row is not None:
        return predict_hcp(data, row, others_named=len(entity_values(dispatch, EntityType.HCP_ID)) > 1)
    if entity_values(dispatch, EntityType.PATIENT_ID):
        message = "The data have no patients, only HCPs; give an hcp_id (HCP-00001 and on) or a brand for a forecast."
        raise AgentFailure("missing_data", message)
    return _predict_kpi(dispatch, data)


def _predict_kpi(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Confidence: precision at the middle of the horizon times coverage reached in the backtest over the nominal 90 % times skill.

    Precision is 1 less half the interval over the mean. Skill counts 1 when the model beats the naive rules, and the naive
    error over the model's error when it does not.
    """
    scope = resolve_scope(dispatch, data)
    kpi, kpi_caveat = resolve_kpi(dispatch)
    if kpi is None:
        raise AgentFailure("missing_data", "No KPI to forecast.")
    horizon, horizon_caveat = _horizon(dispatch, data)
    series = kpi.series(data, scope.mask)
    test = backtest(series, min(horizon, DEFAULT_HORIZON), data.programme_start)
    ahead = forecast(series, horizon, data.programme_start).widened(test.widening).clipped(0.0, 1.0 if kpi.denominator else float("inf"))
    caveats = [*scope.caveats, *(one for one in (kpi_caveat, horizon_caveat) if one), *_forecast_caveats(test, horizon)]
    middle = horizon // 2
    precision = max(0.0, 1.0 - (ahead.high[middle] - ahead.low[middle]) / 2.0 / max(abs(ahead.mean[middle]), 1e-9))
    skill = min(1.0, min(test.naive_error, test.seasonal_error) / max(test.model_error, 1e-12))
    weeks = _future_weeks(data, kpi, ahead)
    return Finding(
        primary_output={
            "target": kpi.name,
            "scope": scope.label,
            "horizon_weeks": horizon,
            "interval_level": 0.9,
            "forecast": weeks,
            "mean_of_horizon": float(ahead.mean.mean()),
            "mean_of_last_weeks": float(series[-min(horizon, len(series)) :].mean()),
            "backtest": {
                "mean_absolute_error": test.model_error,
                "relative_error": test.relative_error,
                "naive_error": test.naive_error,
                "seasonal_naive_error": test.seasonal_error,
                "skill": test.skill,
                "inside_interval": test.inside,
                "points": test.points,
            },
        },
        confidence=precision * min(1.0, test.inside / 0.9) * skill,
        evidence=_forecast_evidence(kpi, scope.label, series, ahead, test),
        caveats=caveats,
        visualizations=(
            forecast_chart(f"{kpi.label}, {scope.label}: last year and {horizon} weeks ahead", _history(data, kpi, series) + weeks),
        ),
        tables=(table("Forecast", weeks),),
        model_used="statsmodels OLS (trend, yearly cycle, step; BIC)",
    )


def _forecast_evidence(kpi: Kpi, label: str, series: Reals, ahead: Forecast, test: Backtest) -> list[str]:
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


def _forecast_caveats(test: Backtest, horizon: int) -> list[str]:
    caveats = ["The forecast assumes that the programmes go on as they are and that no new break comes."]
    if test.skill < 0:
        caveats.append(f"In the backtest a naive rule was better: the model's error was {100 * -test.skill:.0f} % larger.")
    if horizon > DEFAULT_HORIZON:
        caveats.append(f"The backtest covers {DEFAULT_HORIZON} weeks ahead; beyond them the error is not measured.")
    return caveats


def _horizon(dispatch: AgentDispatch, data: Snapshot) -> tuple[int, str | None]:
    period, caveat = resolve_period(dispatch, data)
    if period is None:
        period = _period_in_text(dispatch, data)
    if period is None:
        return DEFAULT_HORIZON, caveat or f"No horizon was named; {DEFAULT_HORIZON} weeks were taken."
    if not period.ahead:
        return DEFAULT_HORIZON, f"The named period lies in the past; the forecast is for the next {DEFAULT_HORIZON} weeks."
    if period.length > LONGEST_HORIZON:
        return LONGEST_HORIZON, f"The forecast stops after {LONGEST_HORIZON} weeks; {period.length} were asked for."
    return period.length, None


def _period_in_text(dispatch: AgentDispatch, data: Snapshot) -> Period | None:
    found = _AHEAD_IN_TEXT.search(normal_form(question_of(dispatch)))
    return parse_period(found[0], data.week_ends) if found else None


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
