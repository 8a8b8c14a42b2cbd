"""gap_analyzer (tier 2): where a brand stays below what its best regions reach with HCPs of the same size, and by how much."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.agents.attainment import Cell, measure_brand
from service.agents.chart import Row, bar_chart, interval_chart, table
from service.agents.finding import Finding
from service.agents.gap_request import GapRequest, read_gap_request
from service.agents.resampling import interval, share_true
from service.agents.sample_data import Reals, Snapshot
from service.agents.scope import Scope, resolve_kpi, resolve_period, resolve_scope
from service.agents.shortfall import list_seldom_called, measure_hcps, seldom_called, split_gap, widest_hcps
from service.contracts.dispatch import AgentDispatch

DEFAULT_WEEKS = 26
MOST_SEGMENTS = 10


@dataclass(frozen=True, slots=True)
class _Gaps:
    scope: Scope
    weeks: int
    last_week: str
    regions: list[Cell]
    segments: list[Cell]
    benchmarks: list[Cell]
    total: float
    total_replicates: Reals

    @property
    def open(self) -> list[Cell]:
        """The regions below the benchmark, widest gap first."""
        return [cell for cell in self.regions if not cell.is_benchmark]


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Rank the gaps between observed and attainable TRx, by region and, where the question asks for them, below it.

    Confidence is the share of bootstrap replicates in which the leading gap is still the widest and above 0; where no
    region is below the benchmark, it is the share in which the total over all regions stays within 5 % of the observed volume.
    It counts for as much as such gaps answer the question (`GapRequest.nearness`).

    Raises:
        AgentFailure: The data do not have the named brand, region, KPI or period.
    """
    scope = resolve_scope(dispatch, data)
    kpi, _ = resolve_kpi(dispatch)
    period, period_caveat = resolve_period(dispatch, data)
    usable = period is not None and not period.ahead
    start, stop = (period.start, period.stop) if period is not None and usable else (data.weeks - DEFAULT_WEEKS, data.weeks)
    gaps, request = _collect(data, scope, start, stop), read_gap_request(dispatch)
    detail = _detail(data, gaps, request, start, stop)
    caveats = [*scope.caveats, *([period_caveat] if period_caveat else [])]
    if period is not None and period.ahead:
        caveats.append(f"A period to come has no observed volume; the last {DEFAULT_WEEKS} weeks were used.")
    if request.absent:
        caveats.append(f"The data do not have {' or '.join(request.absent)}; the gaps are those to the best regions.")
    if request.names_districts:
        caveats.append("The data's districts are its four regions; there are none below them.")
    if kpi is not None and kpi.name not in {"trx", "market_share"}:
        caveats.append(f"Gaps are measured in TRx and market share; {kpi.label} has no attainable level in the data.")
    caveats.append(
        "Attainable means the share of the best regions at the same decile band; it says nothing of what closing a gap would cost. The "
        "benchmark is picked from the data, so gaps are slightly overstated where regions are close."
    )
    return Finding(
        primary_output={
            **_output(gaps),
            "nearness": request.nearness,
            "not_in_data": list(request.absent),
            "specialties": list(request.specialties),
            **detail,
        },
        confidence=_confidence(gaps) * request.nearness,
        evidence=[*_lead(request, detail), *_evidence(gaps)],
        caveats=caveats,
        visualizations=_charts(gaps),
        tables=(
            table("Gap by region", [_row(cell) for cell in gaps.regions]),
            table("Widest segments", [_row(cell) for cell in gaps.segments]),
            *(table(name.replace("_", " "), rows) for name, rows in detail.items() if isinstance(rows, list)),
        ),
        model_used="standardised share with HCP bootstrap",
    )


def _collect(data: Snapshot, scope: Scope, start: int, stop: int) -> _Gaps:
    everywhere = [cell for brand in scope.brands for cell in measure_brand(data, brand, start, stop)]
    benchmarks = [cell for cell in everywhere if cell.band is None and cell.is_benchmark]
    cells = [cell for cell in everywhere if cell.region in scope.regions]
    regions = sorted((cell for cell in cells if cell.band is None), key=lambda cell: -cell.gap)
    segments = sorted((cell for cell in cells if cell.band is not None and not cell.is_benchmark), key=lambda cell: -cell.gap)
    open_regions = [cell for cell in regions if not cell.is_benchmark]
    replicates = np.sum([cell.gaps for cell in open_regions], axis=0) if open_regions else np.zeros(2)
    return _Gaps(
        scope,
        stop - start,
        data.week_ends[stop - 1].isoformat(),
        regions,
        segments[:MOST_SEGMENTS],
        benchmarks,
        sum(cell.gap for cell in open_regions),
        replicates,
    )


def _detail(data: Snapshot, gaps: _Gaps, request: GapRequest, start: int, stop: int) -> dict[str, object]:
    """Return what the question asks for below the region: splits of the open gap, single HCPs, seldom called HCPs."""
    shortfall = measure_hcps(data, gaps.benchmarks, start, stop)
    detail: dict[str, object] = {}
    brand, region = data.labels("brand"), data.labels("region")
    chosen_specialty = np.isin(data.labels("specialty"), request.specialties) if request.specialties else np.ones(len(brand), dtype=bool)
    inside = gaps.scope.mask & chosen_specialty
    below = np.zeros(len(brand), dtype=bool)
    for cell in gaps.open:
        below |= (brand == cell.brand) & (region == cell.region)
    for column in request.splits if below.any() else ():
        detail[f"by_{column}"] = split_gap(data, shortfall, below, column)
    if inside.any() and request.asks_contact:
        chosen = seldom_called(data, inside, start, stop)
        detail["never_called_count"] = int((inside & (data.weekly["calls"][start:stop].sum(axis=0) == 0)).sum())
        detail["seldom_called"] = list_seldom_called(data, chosen, shortfall, start, stop)
        detail["seldom_called_count"] = int(chosen.sum())
        detail["seldom_called_by_region"] = {name: int((chosen & (region == name)).sum()) for name in gaps.scope.regions}
    elif inside.any() and request.asks_hcps:
        detail["hcps"] = widest_hcps(data, shortfall, inside)
    return detail


def _lead(request: GapRequest, detail: Mapping[str, object]) -> list[str]:
    """Return what answers the question's own words, and first of all what the data lack."""
    sentences = []
    if request.absent:
        sentences.append(f"The data do not have {' or '.join(request.absent)}; shown is what each region lacks against the best ones.")
    if isinstance(rows := detail.get("seldom_called"), list):
        places = detail["seldom_called_by_region"]
        where = ", ".join(f"{name} {count}" for name, count in places.items()) if isinstance(places, Mapping) else ""
        first = ", ".join(f"{row['hcp_id']} ({row['candidates']} candidate patients, {row['calls']} calls)" for row in rows[:5])
        sentences.append(
            f"{detail['seldom_called_count']} HCPs are in the upper third by candidate patients and in the lower third by calls ({where}); "
            f"first {first}. No call at all in these weeks had {detail['never_called_count']} HCPs."
        )
    if isinstance(rows := detail.get("hcps"), list):
        first = ", ".join(f"{row['hcp_id']} in the {row['region']} ({row['gap']:.1f})" for row in rows[:5])
        sentences.append(
            f"HCPs furthest below, in TRx a week, {len(rows)} listed: {first}." if rows else "No single HCP is measurably below."
        )
    for column in request.splits:
        if isinstance(rows := detail.get(f"by_{column}"), list):
            parts = "; ".join(f"{row[column]} {row['gap']:,.0f} of {row['attainable']:,.0f}" for row in rows)
            sentences.append(f"The gap by {column}, in TRx a week of what is attainable: {parts}.")
    return sentences


def _confidence(gaps: _Gaps) -> float:
    if not gaps.open:
        drift = np.sum([cell.gaps for cell in gaps.regions], axis=0)
        return share_true(np.abs(drift) < 0.05 * sum(cell.observed for cell in gaps.regions))
    first, others = gaps.open[0], gaps.open[1:]
    widest = np.all([first.gaps > other.gaps for other in others], axis=0) if others else np.ones(len(first.gaps), dtype=bool)
    return share_true(widest & (first.gaps > 0.0))


def _output(gaps: _Gaps) -> dict[str, object]:
    low, high = interval(gaps.total_replicates)
    return {
        "scope": gaps.scope.label,
        "weeks": gaps.weeks,
        "last_week": gaps.last_week,
        "total_gap": gaps.total,
        "total_gap_interval": [low, high],
        "unit": "TRx per week",
        "observed": sum(cell.observed for cell in gaps.regions),
        "ranked": [{"rank": rank, **_row(cell)} for rank, cell in enumerate(gaps.open, start=1)],
        "benchmarks": [{"brand": cell.brand, "region": cell.region} for cell in gaps.benchmarks],
        "segments": [_row(cell) for cell in gaps.segments],
    }


def _row(cell: Cell) -> Row:
    low, high = cell.bounds
    row: dict[str, object] = {"brand": cell.brand, "region": cell.region}
    if cell.band is not None:
        row["segment"] = cell.band
    return row | {
        "observed": round(cell.observed, 1),
        "attainable": round(cell.attainable, 1),
        "gap": round(cell.gap, 1),
        "low": round(low, 1),
        "high": round(high, 1),
        "attainment": round(cell.observed / max(cell.attainable, 1e-9), 3),
        "is_benchmark": cell.is_benchmark,
    }


def _evidence(gaps: _Gaps) -> list[str]:
    by_brand = {brand: [cell.region for cell in gaps.benchmarks if cell.brand == brand] for brand in gaps.scope.brands}
    benchmarks = "; ".join(f"{brand}: {', '.join(regions)}" for brand, regions in by_brand.items())
    if not gaps.open:
        return [
            f"Over the {gaps.weeks} weeks to {gaps.last_week} no region in {gaps.scope.label} is measurably below the best ones "
            f"({benchmarks})."
        ]
    low, high = interval(gaps.total_replicates)
    observed = sum(cell.observed for cell in gaps.regions)
    sentences = [
        f"{gaps.scope.label[0].upper()}{gaps.scope.label[1:]}: {gaps.total:,.0f} TRx a week are attainable beyond the {observed:,.0f} "
        f"observed (95 % interval {low:,.0f} to {high:,.0f}), measured over the {gaps.weeks} weeks to {gaps.last_week}."
    ]
    for cell in gaps.open[:3]:
        low, high = cell.bounds
        sentences.append(
            f"{cell.brand} in the {cell.region}: {cell.observed:,.0f} of {cell.attainable:,.0f} attainable TRx a week "
            f"({100 * cell.observed / cell.attainable:.0f} %), a gap of {cell.gap:,.0f} ({low:,.0f} to {high:,.0f})."
        )
    if gaps.segments:
        widest = gaps.segments[0]
        sentences.append(f"The widest segment is {widest.brand}, {widest.region}, {widest.band}: {widest.gap:,.0f} TRx a week.")
    sentences.append(f"Benchmark regions, {benchmarks}.")
    return sentences


def _charts(gaps: _Gaps) -> tuple[dict[str, object], ...]:
    rows: list[Row] = [{"group": f"{cell.brand}, {cell.region}", **_row(cell)} for cell in gaps.regions]
    segments: list[Row] = [{"group": f"{cell.brand}, {cell.region}, {cell.band}", **_row(cell)} for cell in gaps.segments]
    title = f"Gap to the best regions, {gaps.scope.label} (TRx a week)"
    charts = [interval_chart("gap_by_region", title, rows, label="group", value="gap")]
    if segments:
        charts.append(bar_chart("gap_by_segment", "Widest segments (TRx a week)", segments, value="gap", label="group", color="region"))
    return tuple(charts)
