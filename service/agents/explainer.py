"""explainer (tier 5): explains earlier results, a KPI's change, or a term; and says so when there is nothing to explain."""

import re

from service.agents.chart import Row, bar_chart, interval_chart, table
from service.agents.decomposition import Change, Window, decompose, volume_and_share
from service.agents.finding import AgentFailure, Finding
from service.agents.glossary import TERMS, TermMatch, find_term
from service.agents.known_names import known_names
from service.agents.kpi import Kpi, find_kpi, normal_form
from service.agents.retelling import confidence_of, earlier_results, output_of, retell
from service.agents.sample_data import Snapshot
from service.agents.scope import Scope, context_text, question_of, resolve_kpi, resolve_period, resolve_scope
from service.contracts.dispatch import AgentDispatch

DEFAULT_WEEKS = 13
TERM_MATCH = 0.75
"""Where data are named too, a term is what is asked for when it makes up enough of the question (see `Term.match`)."""
KPI_TERM_MATCH = 0.95
ABSENT_MEASURES = ("NBRx", "reach")
"""Terms that are measures too: "NBRx fell" asks for data that there are not, not for the meaning of the word."""
_ASKS_MEANING = re.compile(r"\b(?:mean\w*|defin\w*|diff\w*|vs|versus|calculated|computed|counts?|stands? for|whats?)\b")
_CHANGE = re.compile(
    r"\b(?:why|caus\w+|driv\w+|drove|chang\w+|drop\w*|f[ae]ll\w*|declin\w+|decreas\w+|r[io]se\w*|rising|gr[eo]w\w*|increas\w+|"
    r"trend\w*|mov\w+|jump\w*|down|up|lower|higher)\b"
)

_DEFINES = re.compile(
    r"\b(?:whats?|mean\w*|defin\w*|read|plain|words|english|clarif\w*|demystif\w*|difference|diff|calculated|computed|counts?|understand|"
    r"vs|versus|how|explain\w*|make sense|sense of|stand for)\b"
)
_NEEDS_RESULT = re.compile(
    r"\b(?:arriv\w+ at|landed on|came up with|come up with|tl dr|tldr|on what (?:grounds|basis)|told me to|told us to|gist of|"
    r"key (?:takeaways|points|messages)|takeaways (?:from|of)|summar\w+|really saying|boil \w+|recap|sentences on|rationale for)\b"
)
"""Asks for the content or the steps of a result that must come with the question."""
_RESULT = re.compile(
    r"\b(?:readout|report|study|chart|page \d+|slide|plot|waterfall|results?|dashboards?|recommend\w*|suggest\w*|write up|output|card|"
    r"drs?|agent)\b"
)
"""Speaks of a result or of one doctor's score; a general answer must say that it is not about that one."""
_NO_RESULT = "The result or chart that the question speaks of did not come with it, so this is a general explanation."


def answer(dispatch: AgentDispatch, data: Snapshot) -> Finding:
    """Explain what the dispatch holds, in this order: earlier results, a change, a term, a named brand, region or KPI.

    Raises:
        AgentFailure: There is nothing to explain, or a name is not in the data.
    """
    if earlier_results(dispatch):
        return _explain_results(dispatch)
    question = " ".join(part for part in (context_text(dispatch, "term"), question_of(dispatch)) if part)
    text = normal_form(question).replace("write up", "report")
    asks_change = _CHANGE.search(text) is not None
    if _NEEDS_RESULT.search(text) and not asks_change:
        raise _nothing("the question is about an earlier result, and none came with it")
    known, absent = known_names(dispatch, data)
    scope = resolve_scope(known, data)
    kpi, _ = resolve_kpi(known, default=None)
    names_data = scope.brand_named or scope.region_named or kpi is not None
    term = find_term(question)
    defines = _DEFINES.search(text) is not None
    about_data = asks_change and (names_data or (term is not None and term.term.name in ABSENT_MEASURES and not _ASKS_MEANING.search(text)))
    if term is not None and not about_data and term.quality >= _needed(term, scope, defines=defines):
        return _explain_term(data, scope, term, [*absent, *([_NO_RESULT] if _RESULT.search(text) else [])])
    if absent:
        resolve_scope(dispatch, data)
        resolve_kpi(dispatch, default=None)
    if _RESULT.search(text) and not asks_change:
        raise _nothing("the question is about an earlier result or chart, and none came with it")
    if names_data:
        return _explain_change(dispatch, data, scope)
    raise _nothing("the question names no brand, region or KPI, no earlier results came with it, and it has none of the known terms")


def _nothing(reason: str) -> AgentFailure:
    known = ", ".join(one.name for one in TERMS)
    message = f"There is nothing to explain: {reason}. Results come in the context as `agent_results`. The known terms are: {known}."
    return AgentFailure("missing_data", message)


def _explain_results(dispatch: AgentDispatch) -> Finding:
    """Confidence: the lowest among the results explained, because an explanation is no surer than what it rests on."""
    results = earlier_results(dispatch)
    confidence = min(confidence_of(item) for item in results)
    caveats = ["The sentences restate the earlier results; nothing was computed anew."]
    without = sum(confidence_of(item) == 0.0 for item in results)
    if without:
        caveats.append(f"{without} of {len(results)} results came without a confidence, which counts as 0.")
    return Finding(
        primary_output={
            "kind": "earlier_results",
            "explained": [
                {"agent_id": item.get("agent_id"), "confidence": confidence_of(item), "fields": list(output_of(item))[:20]}
                for item in results
            ],
            "summary": " ".join(retell(item) for item in results),
        },
        confidence=confidence,
        evidence=[retell(item) for item in results],
        caveats=caveats,
        model_used="templates over earlier results",
    )


def _needed(match: TermMatch, scope: Scope, *, defines: bool) -> float:
    """A measure beside a brand is mostly what is looked at, not what is asked for; a method's name is no measure."""
    if not scope.brand_named and not scope.region_named:
        return 0.0
    if find_kpi(match.term.name) is not None:
        return KPI_TERM_MATCH
    return 0.0 if defines else TERM_MATCH


def _explain_term(data: Snapshot, scope: Scope, match: TermMatch, notes: list[str]) -> Finding:
    """Confidence: the quality of the match between the question and the term, 0.6 to 1."""
    term = match.term
    example = f"For example, for {scope.label}: {term.example(data, scope.mask)}"
    caveats = ["The example is computed on the sample data.", *notes]
    return Finding(
        primary_output={
            "kind": "term",
            "term": term.name,
            "meaning": term.meaning,
            "example": example,
            "compared_with": [{"term": other.name, "meaning": other.meaning} for other in match.others],
        },
        confidence=match.quality,
        evidence=[term.meaning, *(other.meaning for other in match.others), example],
        caveats=caveats if scope.brand_named else [*caveats, *scope.caveats],
        model_used="glossary with computed examples",
    )


def _explain_change(dispatch: AgentDispatch, data: Snapshot, scope: Scope) -> Finding:
    """Confidence: the share of bootstrap replicates in which the leading group stays the leading one."""
    kpi, kpi_caveat = resolve_kpi(dispatch)
    if kpi is None:
        raise AgentFailure("missing_data", "No KPI to explain.")
    before, after, period_caveat = _windows(dispatch, data)
    dimensions = _dimensions(scope)
    changes = [decompose(data, scope.mask, kpi, before, after, dimension) for dimension in dimensions]
    caveats = [*scope.caveats, *(one for one in (kpi_caveat, period_caveat) if one)]
    caveats.append("The decomposition says where the change lies, not what caused it; it adds up exactly.")
    if changes[0].low <= 0.0 <= changes[0].high:
        caveats.append("The whole change is within what chance gives, so its parts should not be read as drivers.")
    return Finding(
        primary_output={
            "kind": "change",
            "kpi": kpi.name,
            "scope": scope.label,
            "before": {"weeks": _dates(data, before), "value": changes[0].before},
            "after": {"weeks": _dates(data, after), "value": changes[0].after},
            "change": changes[0].total,
            "change_interval": [changes[0].low, changes[0].high],
            "contributions": {change.dimension: _rows(change, kpi) for change in changes},
        },
        confidence=changes[0].leader_certainty,
        evidence=_change_evidence(data, scope, kpi, before, after, changes),
        caveats=caveats,
        visualizations=_change_charts(kpi, scope, changes),
        tables=tuple(table(f"Contribution to the change by {change.dimension}", _rows(change, kpi)) for change in changes),
        model_used="exact decomposition with HCP bootstrap",
    )


def _windows(dispatch: AgentDispatch, data: Snapshot) -> tuple[Window, Window, str | None]:
    period, caveat = resolve_period(dispatch, data)
    if period is None or period.ahead:
        note = caveat or f"No past period was named; the last {DEFAULT_WEEKS} weeks are compared with the {DEFAULT_WEEKS} before."
        return (data.weeks - 2 * DEFAULT_WEEKS, data.weeks - DEFAULT_WEEKS), (data.weeks - DEFAULT_WEEKS, data.weeks), note
    start = period.start - period.length
    if start < 0:
        raise AgentFailure(
            "missing_data",
            f"The {period.length} weeks of the named period have no {period.length} weeks before them to be compared with; the data begin "
            f"with the week ending {data.week_ends[0].isoformat()}.",
        )
    return (start, period.start), (period.start, period.stop), caveat


def _dimensions(scope: Scope) -> list[str]:
    dimensions = [name for name, many in (("brand", len(scope.brands) > 1), ("region", len(scope.regions) > 1)) if many]
    return [*dimensions, "decile band", "setting"][:2]


def _change_evidence(data: Snapshot, scope: Scope, kpi: Kpi, before: Window, after: Window, changes: list[Change]) -> list[str]:
    whole = changes[0]
    unit = "" if kpi.denominator else " a week"
    relative = "" if kpi.denominator else f" ({100 * whole.total / max(whole.before, 1e-9):+.1f} %)"
    sentences = [
        f"{kpi.label[0].upper()}{kpi.label[1:]} of {scope.label} went from {kpi.write(whole.before)}{unit} to "
        f"{kpi.write(whole.after)}{unit} between the {before[1] - before[0]} weeks to {data.week_ends[before[1] - 1].isoformat()} and the "
        f"{after[1] - after[0]} weeks to {data.week_ends[after[1] - 1].isoformat()}: {kpi.write(whole.total, signed=True)}{relative}, 95 "
        f"% interval {kpi.write_range(whole.low, whole.high, signed=True)}."
    ]
    for change in changes:
        first = change.parts[0]
        share = _written_share(first.contribution, change)
        split = (
            f" ({kpi.write(first.rate, signed=True)} by its own rate, {kpi.write(first.mix, signed=True)} by its weight)"
            if kpi.denominator
            else ""
        )
        sentences.append(
            f"By {change.dimension}, {first.group} contributes most: {kpi.write(first.contribution, signed=True)}{share}{split}; it went "
            f"from {kpi.write(first.before)} to {kpi.write(first.after)}."
        )
    if kpi.name == "trx":
        volume, share_part = volume_and_share(data, scope.mask, before, after)
        sentences.append(
            f"Of the change, {kpi.write(volume, signed=True)} a week comes from the size of the market and "
            f"{kpi.write(share_part, signed=True)} from the share of it."
        )
    return sentences


def _written_share(contribution: float, change: Change) -> str:
    if change.low <= 0.0 <= change.high:
        return ""
    part = contribution / change.total
    return f", {100 * part:.0f} % of the change" if part <= 1.0 else ", more than the whole change, which other groups offset in part"


def _change_charts(kpi: Kpi, scope: Scope, changes: list[Change]) -> tuple[dict[str, object], ...]:
    first, second = changes
    title = f"Contribution to the change of {kpi.label}, {scope.label}"
    return (
        interval_chart("contributions", f"{title}, by {first.dimension}", _rows(first, kpi), label="group", value="contribution"),
        bar_chart("contributions_detail", f"{title}, by {second.dimension}", _rows(second, kpi), value="contribution", label="group"),
    )


def _rows(change: Change, kpi: Kpi) -> list[Row]:
    digits = 5 if kpi.denominator else 2
    return [
        {
            "group": part.group,
            "before": round(part.before, digits),
            "after": round(part.after, digits),
            "contribution": round(part.contribution, digits),
            "rate": round(part.rate, digits),
            "mix": round(part.mix, digits),
            "low": round(part.low, digits),
            "high": round(part.high, digits),
        }
        for part in change.parts
    ]


def _dates(data: Snapshot, window: Window) -> list[str]:
    return [data.week_ends[window[0]].isoformat(), data.week_ends[window[1] - 1].isoformat()]
