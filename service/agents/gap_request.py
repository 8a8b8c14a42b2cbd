"""What a question of gaps asks for beside brand and region: a split, single HCPs, contacts, or measures that the data do not have."""

import re
from dataclasses import dataclass

from service.agents.kpi import normal_form
from service.agents.scope import question_of
from service.agents.subgroups.words import ABSENT_SPECIALISTS, SPECIALISTS
from service.contracts.dispatch import AgentDispatch

NEAR = 0.5
_PEOPLE = (
    r"docs?|doctors?|drs?|hcps?|physicians?|prescribers?|accounts?|practices|clinics|hospitals?|offices|groups|facilities|sites|names|ones"
)
_SPLITS = {
    "specialty": r"speciali?t(?:y|ies)|specialties",
    "setting": r"academic|community|settings?|hospital business|teaching|universit\w+",
}
_HCPS = (
    rf"who|whos|which (?:\w+ ){{0,3}}(?:{_PEOPLE})|(?:what|those|these|the|high value|high volume|high potential) (?:{_PEOPLE})|accounts?"
    rf"|(?:list|find|show|rank|single out|singled out) (?:\w+ ){{0,3}}(?:{_PEOPLE})|how many and where|hcps? who|doctors? who|docs who"
)
_CONTACT = (
    r"(?:barely|hardly|rarely|never|no one|nobody|no rep|not|havent|haven t|hasnt|hasn t)(?: has| have| ever| a| been){0,3}"
    r" (?:see|sees|seen|hears?|heard|visit\w*|call\w*|touch\w*|met|knock\w*|reach\w*|rep|got invited|invited)"
    r"|under called|under reached|not (?:being )?visited|no rep has|ignoring|coverage holes|nobody is serving|underserved"
)
_ABSENT = (
    (r"(?<!budget )plan|quota|targets?|goals?", "a plan, target or quota", NEAR),
    (r"states?|zips?|zip ?codes?|zip3|cit(?:y|ies)|pacific northwest|texas|oregon|denver|ohio|florida|california",
     "places below the region", NEAR),
    (rf"{ABSENT_SPECIALISTS}|heart failure", "that specialty", 0.0),
    (r"industry|norm|other brands|similar brands", "an industry norm", NEAR),
    (r"rivals?|competitors?|the ones they have", "what single competitors sell", NEAR),
    (r"hub|enrol\w*|support program\w*|patient services|referr?als?|referred", "enrolments and patient services", 0.0),
    (r"(?:on which|in a bunch of) plans|preferred status|formulary|payers?|coverage|pull through|step edit", "payers and their plans", 0.0),
    (r"open rates?|our emails|webinar\w*|sign ?ups?|savings card|copay card", "responses to emails, webinars and cards", 0.0),
    (r"adherence|persisten\w+|first fill|refills?", "what becomes of patients", 0.0),
)  # fmt: skip
"""What the data do not have: pattern, what it is called, and how near the gap to the best regions comes to it."""


@dataclass(frozen=True, slots=True)
class GapRequest:
    """`nearness` is how far the gap to the best regions answers the question: 1, 0.5 (stands in), or 0 (something else is asked)."""

    splits: tuple[str, ...]
    asks_hcps: bool
    asks_contact: bool
    specialties: tuple[str, ...]
    names_districts: bool
    absent: tuple[str, ...]
    nearness: float


def read_gap_request(dispatch: AgentDispatch) -> GapRequest:
    """Return what the question's text asks for."""
    text = normal_form(question_of(dispatch))
    absent = [(name, nearness) for pattern, name, nearness in _ABSENT if _found(pattern, text)]
    asks_contact = _found(_CONTACT, text)
    specialties = tuple(name for name, pattern in SPECIALISTS.items() if _found(rf"{pattern}|{name.split()[0].casefold()[:6]}", text))
    splits = [name for name, pattern in _SPLITS.items() if _found(pattern, text)]
    return GapRequest(
        splits=tuple(dict.fromkeys([*(["specialty"] if specialties else []), *splits])),
        asks_hcps=_found(_HCPS, text) or asks_contact,
        asks_contact=asks_contact,
        specialties=specialties,
        names_districts=_found(r"districts?|territor(?:y|ies)", text),
        absent=tuple(name for name, _ in absent),
        nearness=min((nearness for _, nearness in absent), default=1.0),
    )


def _found(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![^ ])(?:{pattern})(?![^ ])", text) is not None
