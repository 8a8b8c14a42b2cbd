"""What a question wants predicted: a KPI, a ranking of HCPs, or something that the data do not have."""

import re
from dataclasses import dataclass

import numpy as np

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.sample_data import Mask, Snapshot
from service.agents.scope import question_of, quoted
from service.agents.subgroups.words import ABSENT_SPECIALISTS, SPECIALISTS
from service.contracts.dispatch import AgentDispatch

MOST_RANKED = 50
USUAL_RANKED = 10
_PEOPLE = (
    r"docs?|doctors?|hcps?|physicians?|prescribers?|writers?|clinicians?|leads|accounts?|practices|clinics|hospitals?|targets?|target list"
    r"|\w+ologists?|allergists?|derms?|cardios?|nephros?"
)
_EVENTS = r"adopt\w*|lapse\w*|conver\w+"
_RANK = re.compile(
    rf"\b(?:who|whos|which (?:\w+ ){{0,2}}(?:{_PEOPLE})|rank(?:ing)?|(?:score|rate) (?:\w+ ){{0,4}}(?:{_PEOPLE}|list)"
    rf"|(?:odds|chances?|likelihood|probability|probabilities) (?:of|per|for|that) (?:\w+ ){{0,4}}(?:{_PEOPLE}|{_EVENTS})"
    rf"|list of (?:\w+ )?(?:{_PEOPLE})|(?:{_PEOPLE}) (?:\w+ ){{0,3}}(?:most likely|likely to)|(?:{_PEOPLE}) about to"
    r"|per doctor|lapse odds|churn (?:scores?|prob\w+))\b"
)
_STOP = re.compile(
    r"\b(?:stop\w*|drop(?:ping)? (?:us|off|our)|lapse\w*|churn\w*|quit\w*|defect\w*|switch away|leav\w+ us|lose|losing|abandon\w*|shaky"
    r"|at risk)\b"
)
_PATIENTS = re.compile(
    r"\b(?:(?:which|what|flag|score|list|rank|those|the|of|my|our) (?:\w+ ){0,2}patients?"
    r"|patients? (?:who|at risk|that|likely|drop\w*|of month)|refil\w+|therapy persist\w+)\b"
)
_DOCTOR = re.compile(r"\b(?:[Dd][Rr]\.? |[Dd][Rr]\.|[Pp]rof\.? )(?P<name>[A-Za-z][\w'-]{2,})")
_UNITS = re.compile(r"\b(?:cartons?|box(?:es)?|packs?|vials?|pens?|dollars?|revenue|gross to net)\b")
_NO_NAMES = {"list", "that", "this", "with", "from", "will", "about", "which", "likely", "level", "score", "visits", "office"}
_TOP = re.compile(r"\btop (\d{1,3})\b|\b(\d{1,3}) (?:docs|doctors|hcps|physicians|names)\b")
_PLAN = re.compile(r"\b(?:plan|quota|target|goal|budget|the number|forecasted number)\b")
_OWN_LIST = re.compile(r"\b(?:list|file|upload\w*|attendees|invite\w*|signed up|onboarded|my \d+)\b")
_STARTS = re.compile(r"\b(?:new (?:starts?|patients?|starters)|starts|enrol\w+)\b")
_EACH = {
    "region": re.compile(r"\b(?:each|every|per|by|all) (?:\w+ )?(?:regions?|territor\w+|districts?|states?)\b"),
    "brand": re.compile(r"\b(?:each|every|per|by) (?:\w+ )?(?:brands?|products?)\b"),
}
_SCENARIOS = re.compile(r"\b(?:best|worst|base|pessimistic|optimistic|low|high|range|p10|p90|scenario\w*)\b")


@dataclass(frozen=True, slots=True)
class Ranking:
    """HCPs to be ranked: `stops` by the chance that no TRx come, else by the chance of a conversion."""

    stops: bool
    size: int
    mask: Mask
    specialties: tuple[str, ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KpiWish:
    """What a question says of a KPI's forecast beside its name and horizon."""

    each: tuple[str, ...]
    wants_scenarios: bool
    asks_starts: bool
    asks_plan: bool
    unit: str | None


def refuse_patients_and_names(dispatch: AgentDispatch) -> None:
    """Refuse single patients, and doctors by name.

    Raises:
        AgentFailure: The question asks for one of these.
    """
    question = question_of(dispatch)
    if _PATIENTS.search(normal_form(question)):
        message = "The data have no patients, only HCPs; give an hcp_id (HCP-00001 and on) or a brand for a forecast."
        raise AgentFailure("missing_data", message)
    named = next((hit for hit in _DOCTOR.finditer(question) if hit["name"].casefold() not in _NO_NAMES), None)
    if named and not re.search(r"\bhcp\b", named[0], re.IGNORECASE):
        raise AgentFailure(
            "unknown_entity", f"The data have no doctor {quoted(named[0])}, only ids: the ids run from HCP-00001 to HCP-02400."
        )


def read_ranking(dispatch: AgentDispatch, data: Snapshot) -> Ranking | None:
    """Return which HCPs are to be ranked and by what, or None where a KPI is asked for.

    Raises:
        AgentFailure: The question names a specialty that the data do not have.
    """
    text = normal_form(question_of(dispatch))
    if not _RANK.search(text):
        return None
    specialty = data.labels("specialty")
    absent = re.search(rf"\b(?:{ABSENT_SPECIALISTS})\b", text)
    if absent:
        known = ", ".join(sorted(set(specialty.tolist())))
        raise AgentFailure("unknown_entity", f"The data have no specialty {quoted(absent[0])}. Available: {known}.")
    named = tuple(name for name, pattern in SPECIALISTS.items() if re.search(rf"\b(?:{pattern})\b", text))
    size = _TOP.search(text)
    caveats = []
    if _OWN_LIST.search(text):
        caveats.append("No list came with the question, so all HCPs of the data are ranked.")
    wanted = int(next(one for one in size.groups() if one)) if size else USUAL_RANKED
    if wanted > MOST_RANKED:
        caveats.append(f"The first {MOST_RANKED} HCPs are listed; {wanted} were asked for.")
    return Ranking(
        stops=_STOP.search(text) is not None,
        size=max(1, min(MOST_RANKED, wanted)),
        mask=np.isin(specialty, named) if named else np.ones(len(specialty), dtype=bool),
        specialties=named,
        caveats=tuple(caveats),
    )


def read_kpi_wish(dispatch: AgentDispatch) -> KpiWish:
    """Return what the question says of the forecast."""
    text = normal_form(question_of(dispatch))
    return KpiWish(
        each=tuple(name for name, pattern in _EACH.items() if pattern.search(text)),
        wants_scenarios=_SCENARIOS.search(text) is not None,
        asks_starts=_STARTS.search(text) is not None,
        asks_plan=_PLAN.search(text) is not None,
        unit=unit[0] if (unit := _UNITS.search(text)) else None,
    )
