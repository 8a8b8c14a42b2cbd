"""What the analysis of subgroups says in sentences: the answer first, then what supports it, then what limits it."""

from dataclasses import dataclass

from service.agents.kpi import Kpi
from service.agents.scope import entity_values
from service.agents.subgroups.analysis import SMALLEST_GROUP, DimensionResult
from service.agents.subgroups.dimensions import Dimension
from service.agents.subgroups.model import GroupEffect, Heterogeneity, null_chance
from service.agents.subgroups.request import Request
from service.agents.subgroups.sorting import Sorting
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

MOST_SENTENCES = 5
WEAK_EVIDENCE = 0.01


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that was measured for one question. `calls_a_month` is per HCP, in and out of the programme."""

    request: Request
    overall: GroupEffect
    mean_outcome: float
    overlap: float
    results: list[DimensionResult]
    untested: list[tuple[Dimension, tuple[str, ...]]]
    screened: bool
    crossed: tuple[Dimension, Dimension] | None
    cells: tuple[GroupEffect, ...]
    cell_test: Heterogeneity | None
    sorting: Sorting | None
    calls_a_month: tuple[float, float]
    most_splits: int

    @property
    def leading(self) -> DimensionResult:
        """The dimension with the strongest evidence of a difference; the first named one where none differs."""
        if self.screened or any(one.differs for one in self.results):
            return min(self.results, key=lambda one: one.test.p_value)
        return self.results[0]

    @property
    def harmed(self) -> list[GroupEffect]:
        """The groups and cells whose effect is clearly below 0, allowing for the number of groups looked at (Bonferroni)."""
        groups = [one for result in self.results for one in result.groups] + list(self.cells)
        return [one for one in groups if one.value < 0 and one.p_value * len(groups) < 0.05]


def write_evidence(analysis: Analysis) -> list[str]:
    """Return the answer in one sentence, and the sentences that support it."""
    kpi = analysis.request.kpi
    sentences = [_headline(analysis)]
    told = analysis.results if not analysis.screened else sorted(analysis.results, key=lambda one: one.test.p_value)[:3]
    sentences += [_sentence(kpi, one) for one in told[:MOST_SENTENCES]]
    sentences.append(_overall_sentence(analysis))
    if analysis.cells and analysis.crossed:
        sentences.append(_cells_sentence(analysis))
    if analysis.sorting:
        sentences.append(_ranking_sentence(analysis, analysis.sorting))
    if analysis.request.asks_harm:
        sentences.append(_harm_sentence(analysis))
    return sentences


def write_caveats(dispatch: AgentDispatch, analysis: Analysis) -> list[str]:
    """Return what was assumed, what the data do not have, and what limits the estimates."""
    request = analysis.request
    caveats = list(request.caveats)
    for name, nearest in request.absent:
        labels = " and ".join(_label(analysis, one) for one in nearest)
        caveats.append(f"The data do not have {name}; nothing can be said of it. The nearest that they have: {labels}.")
    for dimension, small in analysis.untested:
        caveats.append(
            f"No test by {dimension.label}: fewer than two groups have {SMALLEST_GROUP} HCPs on either side"
            + (f" ({', '.join(small)} too small)." if small else ".")
        )
    for result in analysis.results:
        if result.too_small:
            caveats.append(f"Left out as too small (under {SMALLEST_GROUP} HCPs on one side): {', '.join(result.too_small)}.")
    if analysis.leading.differs and analysis.leading.p_adjusted > WEAK_EVIDENCE:
        chance = 100 * null_chance(analysis.leading.p_adjusted)
        caveats.append(
            f"{_p(analysis.leading.p_adjusted)} is weak evidence: given even odds beforehand, there is at least a {chance:.0f} % chance "
            "of no difference."
        )
    if request.asks_dose:
        inside, outside = analysis.calls_a_month
        caveats.append(
            f"The data tell the effect of being in the programme (calls per HCP and month: {inside:.1f} inside, {outside:.1f} outside), "
            "not that of one further contact."
        )
    caveats.append(
        "HCPs were not assigned at random: the estimates adjust for decile, potential, digital affinity, setting, region, brand and the "
        "outcome in the 52 weeks before; a cause that is in none of these would bias them. A group that responds more is not shown to "
        "respond because of what defines it."
    )
    if analysis.sorting and analysis.sorting.ranking.splits < analysis.most_splits:
        caveats.append(f"Time was short: {analysis.sorting.ranking.splits} instead of {analysis.most_splits} random halves were used.")
    if request.kpi.name == "market_share":
        caveats.append("The same gain in TRx is a larger gain in share for an HCP with a small market.")
    if entity_values(dispatch, EntityType.TIME_PERIOD):
        caveats.append("The named period was not used: the effect is over the 26 weeks in which the programme ran.")
    return caveats


def _headline(analysis: Analysis) -> str:
    request, leading = analysis.request, analysis.leading
    label, kpi = request.treatment.programme.label, request.kpi
    start = "The effect"
    if request.treatment.is_stand_in:
        start = f"The data have no {request.treatment.asked} as such; measured on the nearest, the {label}: the effect"
    if request.absent and not request.dimensions:
        names = " or ".join(name for name, _ in request.absent)
        start = f"The data do not have {names}, so that split cannot be made; by what they have: {start[0].lower()}{start[1:]}"
    subject = f"{start} of the {label} on {kpi.label} ({request.scope.label})"
    differing = [one for one in analysis.results if one.differs]
    if not differing:
        names = _join([one.dimension.label for one in analysis.results])
        tested = f"in any of the {len(analysis.results)} dimensions tested" if analysis.screened else f"by {names}"
        return (
            f"{subject} does not measurably differ {tested} (smallest adjusted p = {leading.p_adjusted:.2f}); overall it is "
            f"{_effect(kpi, analysis.overall)}."
        )
    names = _join([one.dimension.label for one in differing])
    return (
        f"{subject} differs by {names}: best by {leading.dimension.label} is {leading.best.group} with {_effect(kpi, leading.best)}, worst "
        f"is {leading.worst.group} with {_effect(kpi, leading.worst)}, {_p(leading.p_adjusted)} after Holm."
    )


def _sentence(kpi: Kpi, result: DimensionResult) -> str:
    parts = "; ".join(f"{one.group} {_effect(kpi, one)}, {one.size} HCPs" for one in sorted(result.groups, key=lambda one: -one.value))
    within = " within brands" if result.dimension.nested else ""
    verdict = "they differ" if result.differs else "no difference beyond chance"
    return (
        f"By {result.dimension.label}: {parts}; {verdict} (Cochran Q{within} = {result.test.statistic:.1f} on {result.test.degrees}, "
        f"{_p(result.test.p_value)}, adjusted {_p(result.p_adjusted)})."
    )


def _overall_sentence(analysis: Analysis) -> str:
    request, overall = analysis.request, analysis.overall
    unit = "" if request.kpi.denominator else " per HCP and week"
    sentence = (
        f"Overall effect: {_effect(request.kpi, overall)}{unit}, {100 * overall.relative:+.0f} % of the "
        f"{request.kpi.write(overall.untreated_mean)} without the programme, over {overall.size} HCPs ({overall.treated} in it)."
    )
    if request.claimed_percent is None:
        return sentence
    claimed = request.claimed_percent / 100.0
    inside = overall.low <= claimed * overall.untreated_mean <= overall.high
    return f"{sentence} The {request.claimed_percent:+g} % of the question is {'within' if inside else 'outside'} that interval."


def _cells_sentence(analysis: Analysis) -> str:
    kpi, cells = analysis.request.kpi, sorted(analysis.cells, key=lambda one: -one.value)
    names = " and ".join(one.label for one in analysis.crossed or ())
    best, worst = cells[0], cells[-1]
    test = analysis.cell_test
    return (
        f"Crossing {names} ({len(cells)} cells with {SMALLEST_GROUP} HCPs on either side): largest in {best.group} ({_effect(kpi, best)}), "
        f"smallest in {worst.group} ({_effect(kpi, worst)}); {_p(test.p_value if test else 1.0)} for one effect in all cells."
    )


def _ranking_sentence(analysis: Analysis, sorting: Sorting) -> str:
    kpi, ranking = analysis.request.kpi, sorting.ranking
    worst, best = ranking.quarters[0], ranking.quarters[-1]
    held = f"{_p(ranking.p_value)}, median of {2 * ranking.splits} held-out halves"
    if not ranking.is_real:
        only = next(
            (
                f"all {count} count as {name.replace('_', ' ')}"
                for name, count in sorting.classes.items()
                if count == sum(sorting.classes.values())
            ),
            "",
        )
        return (
            f"A ranking of single HCPs by predicted effect does not hold on HCPs that the model had not seen ({held}), so they cannot be "
            f"sorted one by one; by the overall effect {only or _classes(sorting)}."
        )
    top, low = sorting.profile[-1], sorting.profile[0]
    academic = [100 * _number(one["share_academic"]) for one in (top, low)]
    brands = f"; most frequent brand {top['most_frequent_brand']} and {low['most_frequent_brand']}"
    return (
        f"Ranking HCPs by predicted effect holds on unseen HCPs ({held}): top quarter {_interval(kpi, best.value, best.low, best.high)}, "
        f"bottom quarter {_interval(kpi, worst.value, worst.low, worst.high)}; {_classes(sorting)}. Academic: {academic[0]:.0f} % of the "
        f"top and {academic[1]:.0f} % of the bottom quarter{brands if len(analysis.request.scope.brands) > 1 else ''}."
    )


def _classes(sorting: Sorting) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorting.classes.items())


def _harm_sentence(analysis: Analysis) -> str:
    harmed = analysis.harmed
    if not harmed:
        lowest = min((one for result in analysis.results for one in result.groups), key=lambda one: one.value)
        estimate = _effect(analysis.request.kpi, lowest)
        return f"In no subgroup is the effect clearly below 0; the lowest estimate is {estimate} ({lowest.group})."
    return "Clearly below 0: " + "; ".join(f"{one.group} {_effect(analysis.request.kpi, one)}" for one in harmed) + "."


def _label(analysis: Analysis, name: str) -> str:
    return next((one.dimension.label for one in analysis.results if one.dimension.name == name), name.replace("_", " "))


def _effect(kpi: Kpi, group: GroupEffect) -> str:
    return _interval(kpi, group.value, group.low, group.high)


def _interval(kpi: Kpi, value: float, low: float, high: float) -> str:
    digits = None if kpi.denominator else 2
    return f"{kpi.write(value, digits=digits, signed=True)} ({kpi.write_range(low, high, digits=digits, signed=True)})"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.4f}" if 0.045 < value < 0.055 else f"p = {value:.3f}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
