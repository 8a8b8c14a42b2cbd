"""What a request for an experiment gives, and what it leaves open. What is left open stays None; the plan fills it and says so."""

import re
from dataclasses import dataclass, replace

import numpy as np

from service.agents.experiments.numbers import (
    Change,
    find_alpha,
    find_baseline,
    find_change,
    find_deadline,
    find_dropout,
    find_icc,
    find_looks,
    find_power,
    find_shares,
    find_spread,
    find_weeks,
    plain_numbers,
)
from service.agents.experiments.words import (
    ABSENT_RATES,
    ABSENT_SPECIALISTS,
    CLUSTER_WORDS,
    CLUSTERS,
    DECISIONS,
    DESIGNS,
    LOOK_WORDS,
    METRICS,
    NON_INFERIORITY,
    PEOPLE,
    WEEKLY_LOOKS,
)
from service.agents.finding import AgentFailure
from service.agents.kpi import Kpi, find_kpi, normal_form
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, entity_values, question_of, quoted, resolve_scope
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType

_COUNT = r"(\d+)(?:v\d+)? (?:[a-z-]+ ){0,2}?"
_PER_ARM = r"(?: ?(?:in|for|on)? ?(?:each|per|a|every|both|either)) ?-?(?:arm|group|side|variant)s?"
_MOST_UNITS = 10_000_000
_ACTIVITIES = {"call frequency", "call volume", "calls", "reach", "engagement"}


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured. `kpi` is None where the data do not have it; then the metric is a rate, each unit a yes or a no."""

    name: str
    kpi: Kpi | None
    named: bool
    caveat: str | None = None


@dataclass(frozen=True, slots=True)
class Units:
    """What is assigned: its name, whether each holds several people, and how many there are in all, per arm, or arriving a week."""

    name: str
    is_cluster: bool
    named: bool
    total: int | None = None
    per_arm: int | None = None
    per_week: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """All that the text gives. Rates and shares are fractions, lengths are weeks."""

    text: str
    decision: str
    design: str
    metric: Metric
    units: Units
    scope: Scope
    in_data: bool
    baseline: float | None
    change: Change | None
    spread: float | None
    alpha: float | None
    power: float | None
    icc: float | None
    cluster_size: int | None
    weeks: float | None
    deadline: tuple[str, int] | None
    arms: int | None
    shares: tuple[float, ...]
    dropout: float | None
    looks: int | None
    wants_looks: bool
    non_inferiority: bool
    caveats: tuple[str, ...]


def read_request(dispatch: AgentDispatch, data: Snapshot) -> Request:
    """Return what the dispatch gives.

    A brand, region or KPI without data does not end the planning: the data only lend variances, so others stand in, and that is said.
    """
    text = plain_numbers(question_of(dispatch))
    scope, missing = _read_scope(dispatch, data)
    baseline, spread = find_baseline(text), find_spread(text)
    units = _read_units(text)
    decision = _read_decision(text, units)
    design = _read_design(text, units)
    if decision == "share" and design in {"parallel", "ab_test"}:
        design = "holdout"
    if design == "stepped_wedge" and len(scope.regions) < len(set(data.labels("region").tolist())):
        scope = _everywhere(data, scope)
    metric = _read_metric(dispatch, text, units, rate_given=baseline is not None)
    if spread:
        metric = Metric(metric.name if metric.named else "outcome", None, named=True)
    if (design in {"stepped_wedge", "cluster"} or find_icc(text) is not None) and not units.is_cluster:
        units = replace(units, name=_cluster_name(text, design, units.name), is_cluster=True, named=False)
    absent = re.search(rf"\b(?:{ABSENT_SPECIALISTS})\b", text)
    caveats = [*scope.caveats, *missing]
    if absent:
        caveats.append(f"The data have no {absent[0]}; the HCPs that they have lend variances and strata.")
    weeks, deadline = find_weeks(text), find_deadline(text, data.week_ends[-1])
    return Request(
        text=text,
        decision=decision,
        design=design,
        metric=metric,
        units=units,
        scope=scope,
        in_data=not missing and absent is None,
        baseline=baseline[0] if baseline else None,
        change=_read_change(text, baseline, spread),
        spread=spread[0] if spread else None,
        alpha=find_alpha(text),
        power=find_power(text),
        icc=find_icc(text),
        cluster_size=_read_cluster_size(text),
        weeks=weeks if weeks is not None or deadline is None else float(max(1, deadline[1])),
        deadline=deadline,
        arms=_read_arms(text),
        shares=find_shares(text) if design == "holdout" else (),
        dropout=find_dropout(text),
        looks=find_looks(text),
        wants_looks=_found(LOOK_WORDS, text),
        non_inferiority=_found(NON_INFERIORITY, text),
        caveats=tuple(caveats),
    )


def weekly_looks(request: Request) -> bool:
    """Return whether somebody means to look every week."""
    return request.wants_looks and _found(WEEKLY_LOOKS, request.text)


def _found(pattern: str, text: str) -> bool:
    return re.search(rf"\b(?:{pattern})", text) is not None


def _read_scope(dispatch: AgentDispatch, data: Snapshot) -> tuple[Scope, list[str]]:
    """Return the scope, and what had to be left out of it because the data do not have it."""
    missing: list[str] = []
    for kinds in ((), (EntityType.BRAND,), (EntityType.REGION,), (EntityType.BRAND, EntityType.REGION)):
        try:
            return resolve_scope(_without(dispatch, kinds), data), missing
        except AgentFailure as failure:
            missing = [f"{failure} All that the data have stands in, for variances, strata and counts only."]
    raise AgentFailure("unknown_entity", missing[0])


def _everywhere(data: Snapshot, scope: Scope) -> Scope:
    """Return the scope with all regions: in a stepped wedge the named ones are the first and the last of them."""
    mask = np.isin(data.labels("brand"), scope.brands)
    regions = tuple(sorted(set(data.labels("region").tolist())))
    label = f"{', '.join(scope.brands) if scope.brand_named else 'all brands'} in all regions"
    return replace(scope, regions=regions, mask=mask, label=label, caveats=(*scope.caveats, "All four regions take part in the rollout."))


def _without(dispatch: AgentDispatch, kinds: tuple[EntityType, ...]) -> AgentDispatch:
    entities = tuple(one for one in dispatch.payload.entities if one.type not in kinds)
    return dispatch.model_copy(update={"payload": dispatch.payload.model_copy(update={"entities": entities})})


def _read_decision(text: str, units: Units) -> str:
    found = next((name for name, pattern in DECISIONS if _found(pattern, text)), "plan")
    if found == "power" and units.total is None and units.per_arm is None and not _found(r"enough|feasible|informative", text):
        return "sample_size"
    return found


def _read_design(text: str, units: Units) -> str:
    named = [name for name, pattern in DESIGNS.items() if _found(pattern, text)]
    for name in ("stepped_wedge", "crossover", "factorial", "holdout", "matched"):
        if name in named:
            return name
    if units.is_cluster or _found(CLUSTER_WORDS, text):
        return "cluster"
    return named[0] if named else "parallel"


def _read_change(text: str, baseline: tuple[float, float | None] | None, spread: tuple[float, float | None] | None) -> Change | None:
    """Return the effect wanted: a difference beside a spread first, then a target beside a baseline, then what stands alone."""
    if spread and spread[1] is not None:
        return Change(spread[1], relative=False)
    if baseline and baseline[1] is not None:
        return Change(baseline[1] - baseline[0], relative=False)
    return find_change(text, baseline[0] if baseline else None)


def _cluster_name(text: str, design: str, people: str) -> str:
    """Return the unit to assign where single people cannot be: wide enough that those who talk are in one arm."""
    if people in {"patient", "recipient"}:
        return "site"
    if design == "stepped_wedge":
        return "region"
    return "territory" if re.search(r"\breps?\b", text) else "practice"


def _read_metric(dispatch: AgentDispatch, text: str, units: Units, *, rate_given: bool) -> Metric:
    """Return the metric that the entities or the text name, else what the request's kind suggests."""
    entities = [value for value in entity_values(dispatch, EntityType.KPI) if normal_form(value) not in _ACTIVITIES]
    named = " ".join(entities).casefold().replace("_", " ")
    for source in (named, text):
        for pattern, name, asked in METRICS:
            if source and _found(pattern, source):
                note = f"The data do not have {asked}; NRx, the nearest, lend baseline and spread." if asked else None
                return Metric(name, None if rate_given else find_kpi(name), named=True, caveat=note)
        for pattern, label in ABSENT_RATES:
            if source and _found(pattern, source):
                return Metric(label, None, named=True)
    if _found(r"e ?-?mails?|send", text) and _found(r"a/b|a b\b|subject|variants?|send[ -]?time|versions?", text):
        return Metric("open rate", None, named=False, caveat="No metric was named; for an e-mail the open rate was taken.")
    if rate_given or units.name in {"patient", "recipient"}:
        return Metric("response rate", None, named=False, caveat="No metric was named; a rate (each unit a yes or a no) was taken.")
    if re.search(r"\d pp\b", text):
        return Metric(
            "conversion_rate",
            find_kpi("conversion_rate"),
            named=False,
            caveat="Points of which rate was not said; conversion rate was taken.",
        )
    missed = f"The data have no KPI {quoted(entities[0])}" if entities else "No metric was named"
    return Metric("trx", find_kpi("trx"), named=False, caveat=f"{missed}; TRx per HCP and week was taken.")


def _read_units(text: str) -> Units:
    counted = [
        (hit, name, cluster)
        for table, cluster in ((CLUSTERS, True), (PEOPLE, False))
        for name, pattern in table.items()
        for hit in re.finditer(rf"\b{_COUNT}(?:{pattern})\b", text)
        if not re.search(r"(?:weeks?|months?|days?|quarters?|visits?|calls?|%|pp|subject|arms?|versions?) ", hit[0])
    ]
    traffic = re.search(r"(\d+) (?:[a-z]+ )?(?:[a-z]+ )?(?:a|per|each) (day|week|month)\b|(\d+) (?:[a-z]+ )?(monthly|weekly|daily)", text)
    per_week = None
    if traffic:
        number, period = float(traffic[1] or traffic[3]), (traffic[2] or traffic[4])[:3]
        per_week = number * {"day": 7.0, "dai": 7.0, "wee": 1.0, "mon": 12 / 52}[period]
        counted = [one for one in counted if one[0][1] != str(int(number))]
    sided = re.search(rf"\b(\d+) a side|(\d+)v\d+|(\d+) (?:[a-z]+ ){{0,2}}?[a-z]+{_PER_ARM}", text)
    name, cluster, named = _unit_name(text, counted)
    if sided:
        count = next(int(one) for one in sided.groups() if one)
        return Units(name, cluster, named, per_arm=min(count, _MOST_UNITS), per_week=per_week)
    own = [int(hit[1]) for hit, other, _ in counted if other == name and int(hit[1]) > 1]
    pair = re.search(r"(\d+)(?: [a-z]+)* (?:where|in)?.{0,40}\band (?:the other )?(\d+) (?:to leave alone|in autumn|off|later)", text)
    if pair and own:
        return Units(name, cluster, named, total=int(pair[1]) + int(pair[2]), per_week=per_week)
    return Units(name, cluster, named, total=min(max(own), _MOST_UNITS) if own else None, per_week=per_week)


def _unit_name(text: str, counted: list[tuple[re.Match[str], str, bool]]) -> tuple[str, bool, bool]:
    """Return unit, whether it is a cluster, and whether it is named: the counted one first, then the one to assign by, then any."""
    counts = [(hit, name, cluster) for hit, name, cluster in counted if int(hit[1]) > 1]
    found = next((one for one in counts if one[2]), None)
    by = re.search(r"(?:clusters?(?: are| on)?|(?:randomi[sz]e|assign)(?:d|ed)? (?:by|at|on)|by) ([a-z]+)", text)
    named = [name for name, pattern in CLUSTERS.items() if re.search(rf"\b(?:{pattern})\b", text)]
    wide = [name for name in named if name in {"territory", "district", "region"}]
    if found and not (found[1] == "rep" and wide and _found(CLUSTER_WORDS, text)):
        return found[1], True, True
    if wide and _found(CLUSTER_WORDS, text):
        return wide[0], True, True
    for name, pattern in CLUSTERS.items():
        if by and re.fullmatch(pattern, by[1]):
            return name, True, True
    if counts:
        return counts[0][1], False, True
    if named and not (
        named == ["rep"] and re.search(r"\breps? (?:show|hear|talk|contaminat|who|cherry)|the reps would|dont want reps", text)
    ):
        return named[0], True, True
    people = next((name for name, pattern in PEOPLE.items() if re.search(rf"\b(?:{pattern})\b", text)), None)
    return people or "HCP", False, people is not None


def _read_cluster_size(text: str) -> int | None:
    people = "|".join(PEOPLE.values())
    hit = re.search(
        rf"(?:with|of|having|holds?|about) (\d+) (?:{people}) (?:each|per|in each|a\b)|cluster size (?:of )?(\d+)"
        rf"|(\d+) (?:{people}) (?:per|in each|a) (?:cluster|rep|territory|district|clinic|site|practice|hospital)",
        text,
    )
    size = next((int(one) for one in hit.groups() if one), 0) if hit else 0
    return size if 1 <= size <= 100_000 else None


def _read_arms(text: str) -> int | None:
    if re.search(r"\b2 ?x ?2\b", text):
        return 4
    hit = re.search(
        r"\b(\d)(?: (?!both|each)[a-z]+)?[ -](?:arms?\b|variants?|versions?|messages?|creatives?|creative versions?|doses|price points"
        r"|pitches|subject lines?|banners?|scripts)",
        text,
    ) or re.search(r"\barms (\d)\b", text)
    return min(8, max(2, int(hit[1]))) if hit and int(hit[1]) > 1 else None
