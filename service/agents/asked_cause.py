"""Which cause a question asks about: a programme of the data, one that only stands in for it, or something that the data do not record."""

import re
from dataclasses import dataclass

from service.agents.kpi import normal_form
from service.agents.programme import PROGRAMMES, Programme, resolve_treatment
from service.agents.scope import context_text, question_of
from service.agents.subgroups.words import ABSENT_PROGRAMMES, PROGRAMME_WORDS, STAND_INS
from service.contracts.dispatch import AgentDispatch

NEAR = 0.5
_Span = tuple[re.Match[str], int, str, str]
"""Where the text names a cause; 0 a programme, 1 a near relative, 2 not recorded, 3 reps in general; the programme; what it is called."""
_OWN_STAND_INS = ((r"roundtables?|advisory boards?|booth|workshops?", "events", "speaker_programme"),)
_GENERIC = (r"reps?|sales ?(?:force|reps?|people)|field (?:team|reps?)|(?:rep )?vacanc\w+", "the number of reps", "call_programme")
"""Stands in only where nothing else is named: reps are spoken of in many questions that are not about them."""
_ABSENT_CAUSES = (
    (r"competit\w+|rivals?|biosimilars?|generics?", "moves of competitors"),
    (r"pbms?|payers?|formulary(?: \w+)?|tier \d|prior auth\w*|step (?:therapy|edit)\w*|insur\w+|coverage|medicare|reimburse\w*",
     "decisions of payers"),
    (r"season\w*|summer|winter|holidays?|weather|flu", "the season as a cause of its own"),
    (r"realign\w*|re ?org\w*|territory (?:changes?|cuts?)|headcount|staffing", "changes of territories"),
    (r"nurse\w*|educators?|hotline|patient services|support (?:line|program\w*)|hub|pharm\w+|adherence (?:program\w*|app)",
     "patient services and pharmacies"),
    (r"tv|c?tv (?:spots?|campaign)|radio|journal ads?|ads?|advert\w*|banners?|print|asco|congress booth|social media|awareness",
     "advertising"),
    (r"copay(?: \w+)?|co pay(?: \w+)?|savings card|rebates?|price (?:cut|increase|change)\w*|list price|discount\w*|coupons?|vouchers?",
     "copay cards, prices and rebates"),
    (r"portal|app|website|redesign|chatbot|videos?|open rates?|subject lines?", "digital content"),
    (r"coaching|training|incentive\w*|contest|turnover|manager", "measures for reps"),
    (r"stock ?outs?|supply|recall|safety letter|guidelines?|label (?:change|update)", "supply, safety and guidelines"),
)  # fmt: skip
"""What questions blame or credit and the data do not record: pattern, and what it is called."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The programme that is measured, and how near it comes to what was asked: 1 the same, 0.5 a near relative, 0 not recorded.

    `asked` holds the question's own causes that the data lack; `note` is the caveat on all this.
    """

    programme: Programme
    name: str
    nearness: float
    asked: tuple[str, ...]
    note: str | None


def resolve_cause(dispatch: AgentDispatch) -> Cause:
    """Return the cause that a dispatch asks about.

    A programme of the data goes before a near relative, and this before what is not recorded. Named beside a programme of the data,
    a cause that is not recorded leaves half of the question open.

    Raises:
        AgentFailure: The context names a treatment that the data do not have.
    """
    if context_text(dispatch, "treatment"):
        programme, name, caveat = resolve_treatment(dispatch)
        return Cause(programme, name, 1.0, (), caveat)
    text = normal_form(question_of(dispatch))
    spans = [(hit, 0, name, name) for name, pattern in PROGRAMME_WORDS.items() for hit in _whole(pattern).finditer(text)]
    spans += [(hit, 1, name, asked) for pattern, asked, name in (*STAND_INS, *_OWN_STAND_INS) for hit in _whole(pattern).finditer(text)]
    spans += [(hit, 3, _GENERIC[2], _GENERIC[1]) for hit in _whole(_GENERIC[0]).finditer(text)]
    spans += [(hit, 2, "", asked) for pattern, asked in (*_ABSENT_CAUSES, *ABSENT_PROGRAMMES) for hit in _whole(pattern).finditer(text)]
    kept = _without_hidden(spans)
    absent = tuple(dict.fromkeys(asked for _, rank, _, asked in kept if rank == 2))
    measurable = sorted((one for one in kept if one[1] < 2), key=lambda one: (one[1], one[0].start()))
    if not measurable and not absent:
        measurable = [one for one in kept if one[1] == 3]
    if not measurable and not absent:
        programme, name, caveat = resolve_treatment(dispatch)
        return Cause(programme, name, 1.0, (), caveat)
    if not measurable:
        return Cause(PROGRAMMES[0], PROGRAMMES[0].name, 0.0, absent, _lacks(absent))
    _, rank, name, asked = measurable[0]
    programme = next(one for one in PROGRAMMES if one.name == name)
    lacking = (*((asked,) if rank else ()), *absent)
    nearness = (1.0 if rank == 0 else NEAR) * (NEAR if absent else 1.0)
    note = _others(kept, name) if not lacking else f"{_lacks(lacking)} {_others(kept, name) or ''}".strip()
    return Cause(programme, name, nearness, lacking, note)


def _lacks(causes: tuple[str, ...]) -> str:
    return f"The data do not record {' or '.join(causes)}, so what that did cannot be told."


def _others(spans: list[_Span], name: str) -> str | None:
    labels = {one.name: one.label for one in PROGRAMMES}
    others = sorted({labels[other] for _, rank, other, _ in spans if rank == 0 and other != name})
    return f"The {labels[name]} is tested in full, the {' and the '.join(others)} only estimated beside it." if others else None


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^ ])(?:{pattern})(?![^ ])")


def _without_hidden(spans: list[_Span]) -> list[_Span]:
    """Return the spans without those that a longer one, or an earlier one of the same length, covers."""
    kept: list[_Span] = []
    for one in sorted(spans, key=lambda span: -len(span[0][0])):
        if all(one[0].end() <= other[0].start() or other[0].end() <= one[0].start() for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda span: span[0].start())
