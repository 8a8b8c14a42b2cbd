"""Clauses: cut a request at English function words, and say which parts are not wanted and in what order the rest is to be done.

Only closed-class words are listed (conjunctions, negators, question words, auxiliaries), so it serves any English catalogue. It knows no
labels: whether a clause is a request of its own, and for what, is for the student to say (`wishes.py`). Most requests stay in one piece.
"""

import re
from dataclasses import dataclass, replace
from unicodedata import normalize

MOST_CHARACTERS = 1_000  # more than the encoder reads
MOST_PENDING = 40  # characters of function words in a row; bounds the time for a text of nothing else
MOST_CLAUSES = 6  # the rest of a longer text stays in the last clause; bounds the cost of the batch

_PERSON = r"(?:i|you|we|they|he|she|it|someone|anyone)"
_ACTION = r"(?:you|it|\w+ing)\b"  # "before you retrain", "after checking"; not "before May", and what "we" did is background
_NOBODY = r"(?:nobody|no one) (?:should|may|must|shall|is(?: allowed)? to)"
_NEGATORS = (
    r"don't|dont|do not|never mind|never|without|w/o|instead of|rather than",
    r"(?:there(?:'s| is) )?no need(?: to| for| of)?|except(?: for)?",
    r"you (?:don't|do not|needn't|need not)(?: (?:have|need) to)?",
    r"(?:i|we)(?: don't| do not| didn't| did not| am not|'m not|'re not| won't| will not)(?: really)?"
    r" (?:want|need|ask|wish|care|mean|look|plan|\w+ing)\w*",
    r"(?:it|this|that)(?:'s| is) not (?:about|for)",
    r"not(?! (?:only|just|all|every\w*|many|much|sure|yet|even|so|to|more|enough|quite|until|long)\b)(?: (?:asking|interested|about)\b)?",
    r"(?:you |we |it |they |nobody |no one )?(?:mustn't|must not|shouldn't|should not|shan't|may not)(?: be)?(?! (?:we|i|you|they|it)\b)",
    _NOBODY,
    r"(?:please )?(?:under no circumstances|on no account|in no case|by no means)(?: \w+)??",
    r"(?:please )?(?:refrain from|avoid|hold off(?: on| with)?|stop|cancel|postpone|call off|abort|halt|put off|put on hold)",
    r"no(?!,| (?:one|good|more|idea|clue|reason|way|wait|point|use|matter|longer|doubt|wonder|less|sooner|later|problem|worries|thanks)\b)",
)
_LETTING_GO = re.compile(r"(?:skip|forget(?: about)?|leave out)\b", re.I)  # verbs too ("skip this song"): they negate beside a wish only
_FIRM = re.compile(r"(?!without|w/o|instead of|rather than|except)", re.I)
_NO_NEGATION = re.compile(r"(?:don't|dont|do not) (?:you|we|they|i|it|forget|hesitate|wait|worry|mind|know|get)\b|never mind\b$", re.I)
_NOT_NEEDED = re.compile(r"\b(?:is|are)(?:n't| not) (?:needed|necessary|required|wanted)\b|\b(?:unnecessary|not needed)\b", re.I)
_FORBIDDEN = re.compile(  # a statement: "the model must not be deployed", "deploying now would be a mistake"
    rf"\b(?:(?:must|should|shall|may)(?:n't| not)(?: \w+)? be(?! (?:\w+ing|\w+er|more|less|above|below|over|under|too|so|in)\b)"
    rf"|(?:is|are) not (?:allowed |supposed |meant )?to be|{_NOBODY})\b"
    r"|\b(?:is|are|be) (?:strictly )?(?:forbidden|prohibited|not allowed|off limits)\b"
    r"|\b(?:under no circumstances|on no account|(?:should|must) (?:be )?(?:avoid(?:ed)?|refrain))\b"
    r"|\bwould be (?:an? )?(?:\w+ )?(?:(?:bad|terrible|awful|stupid|wrong) (?:idea|move|thing)|mistake|unwise)\b",
    re.I,
)
_REASON = re.compile(r"\b(?:why|how|what|which|whether|reasons?)\b", re.I)  # "explain why it must not be deployed"
_THOUGHT = r"actually|on (?:second|third) thoughts?|sorry"
_SECOND_THOUGHT = rf"(?:{_THOUGHT}|no|nope|wait|or|rather|i changed my mind)"
_RETRACTS = re.compile(  # "actually no, don't": the last word counts
    rf"(?:{_SECOND_THOUGHT}\W+)+(?=(?:do not|don't|dont|never|not)\b)", re.I
)
_TAKES_BACK = re.compile(
    rf"(?:(?:{_SECOND_THOUGHT}|please|just|better|oh|well|but|and)\W+)*"
    r"(?:no|nope|(?:absolutely|definitely|certainly|of course|better|rather) not|never ?mind|scratch that|forget (?:it|that)|cancel that"
    r"|hold on|wait|stop|don't|do not|never|on second thoughts?)[^\w?]*",
    re.I,
)
_ANSWER = (
    rf"(?:{_SECOND_THOUGHT}|nah|cheers(?: mate)?|thanks(?: a lot| so much)?|thank you(?: so much| very much)?|typo|oops|hold on|never ?mind"
    r"|stop|(?:scratch|cancel|forget) (?:that|it))"
)
_LEAD_IN = re.compile(  # "Thanks! Now ...", "no, I meant ...": it answers what was said before
    rf"(?:{_ANSWER}(?:\s*[,.!:;\u2013\u2014-]+\s*|\s+(?:and|but)\s+))+(?:(?:now|i meant?)\s+)?(?=\S+\s+\S)", re.I
)
_ALL = re.compile(r"\b(?:any(?:thing|one)?|nothing|none|all of (?:it|this|that))\b", re.I)
_QUESTION = rf"(?:(?:what|who|which|when)(?! {_PERSON}\b)|why|how|whom|whose|where|whether)(?:'s|s|'ll|'d)?\b"  # "which we did" tells
_ASKING = (
    rf"(?:{_QUESTION}|please\b|(?:can|could|would|will) (?:you|we|i)\b|let's\b|let me\b|tell me\b"
    r"|(?:i|we)(?:'d| would)? (?:also )?(?:want|need|like|wonder)\b|(?:i|we)'d\b"
    r"|(?:is|are|was|were|do|does|did|has|have|should|shall|will|would|can|could)"
    r" (?:the|there|it|this|that|these|those|they|we|i|you|he|she|my|our|any\w*|some\w*)\b)"
)
_TIME = r"(?:only )?(?:before|prior to|after|once|until|when(?= you\b)|while(?= you\b))"
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\bdr\.)(?<!\bmr\.)(?<!\bms\.)(?<!\bmrs\.)(?<!\bvs\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bst\.)\s+|\s*[;\n]\s*|(?<=:)\s+"
    r"|\s+[-–—+&|]\s+|\s+(?=\d[.)] )",
    re.I,
)
_BREAK = re.compile(
    r"(?<=,)\s+|\s+(?=(?:and(?! without)|but|then|plus|also|afterwards|finally|after that|just|only|simply|so no)\b)"
    rf"|\s+(?={_TIME} {_ACTION})|(?<!\bor)(?<!\band)\s+(?=(?:without|w/o|instead of|rather than)(?:\W|$))"
    r"|\s+(?=(?:can|could|would) you\b|i(?: want|'d (?:like|rather))\b|let's\b)",
    re.I,
)
_DONE = r"(?:when|once|after) (?:that|this|it)(?:'s| is| has been) (?:done|over|finished|completed?|ready),?"
_HEAD = re.compile(
    rf"(?:(?P<thought>{_THOUGHT})|"
    r"(?P<then>then|if (?:so|yes|not|needed|necessary),?|after that|afterwards?|next,|finally|lastly|subsequently|later on|\d[.)]"
    rf"|{_DONE})|(?P<first>first(?: of all)?)|(?P<time>{_TIME})(?= {_ACTION})|(?P<but>but|however)"
    r"|(?P<link>and)|(?P<also>also|plus|furthermore|moreover|meanwhile|besides)|(?P<soft>so|or|oh|ok(?:ay)?|well|please|pls|just|only|simply))"
    r"(?:\b|(?<=\W))[\s,]*",
    re.I,
)
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2019\u02bc\u2018`\u00b4\u2032\uff07", "'"))
_BLANKS = re.compile(r"[^\S\n\r]+")
_APART = re.compile(r" (?=n't\b)")
_NEGATED = re.compile(rf"(?:{'|'.join(_NEGATORS)})(?=\W|$)", re.I)
_STARTS_ASKING = re.compile(_ASKING, re.I)
_PREPOSITION = r"(?:in|on|at|by|with|without|of|from|for|to|about|per|under|over|during|since|ahead|out|like|than|compared|given|according)"
_TELLING = re.compile(
    r"(?:the|a|an|my|our|your|his|her|their|its|this|that|these|those|it|he|she|they|there|here|i|we|you|if|because|as|although|though|while"
    r"|now that"
    r"|(?:some|any|every|no)(?:body|one|thing)|some|half|most|many|several|few|all|each|both|others?|one|two|three|suppos\w+|assum\w+|\w+ing"
    rf"|\d[\w.,%]*|{_PREPOSITION}(?! (?:which|what|whom|how)\b)|after|before|until|once|when (?:that|{_PERSON})|thanks?|hi|hello|sorry)\b",
    re.I,
)
_AUXILIARY = r"(?:is|are|was|were|has|have|had|will|would|can|could|should|may|might|isn't|aren't|wasn't|hasn't|haven't|can't|won't|'re)"
_NO_NOUN = rf"(?:that|if|whether|which|who|what|where|how|the|a|an|my|our|your|all|every|each|{_PERSON})"
_STATES = re.compile(  # "accuracy is too good": a subject of up to three words, then a finite auxiliary
    rf"(?!{_QUESTION}|{_AUXILIARY}\b|(?:do|does|did)\b)(?:(?!{_NO_NOUN}\b)\w[\w'-]*\s+){{0,2}}"
    rf"(?!{_NO_NOUN}\b)\w[\w-]*(?:\s+|(?='))(?<!\bme ){_AUXILIARY}\b",
    re.I,
)
_SUBJECT = re.compile(rf"^{_PERSON}(?:'ve| have| has| had)?\s+", re.I)
_WORD = re.compile(r"\w")
_POLITE = re.compile(r"[ ,]+(?:please|pls|thanks|thank you)\b[ .!]*$", re.I)
_LAST_FIRST = re.compile(r"\bfirst\W*$", re.I)
_LAST_THEN = re.compile(r"\b(?:afterwards|after that|later)\W*$", re.I)
_PAIR = re.compile(r"\b(?:between|both)(?!.*\band\b)", re.I)  # "between A and B"
_LISTED = re.compile(r"\S+(?: \S+){0,2} (?:or|and) ", re.I)
_SEQUENCE = re.compile(r"[^,]*,.*\b(?:then|finally)\b", re.I)  # "A, B, then C"
_CONDITION = re.compile(r"(?:if|when|whenever|as soon as|in case|should)\b", re.I)
_ORDERS = frozenset({"before", "prior to", "after", "once", "until"})
_TIMES = _ORDERS | {"when", "while"}
_ORDERING = _ORDERS | {"then", "first"}


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a request.

    Attributes:
        raw: as written.
        text: without leading conjunctions and negators.
        marks: the kinds of function words that it opens with, such as `then` or `before`.
        negated: the speaker does not want it.
        firm: it does not begin with a preposition such as "without", which often names a mere circumstance.
        asks: it has the form of a request; a statement is background.
        clear: it asks in so many words (a question, "please", "tell me"); a bare clause may turn out a statement.
        opens: it begins a sentence.
    """

    raw: str
    text: str
    marks: frozenset[str]
    negated: bool
    firm: bool
    asks: bool
    clear: bool
    opens: bool


@dataclass(frozen=True, slots=True)
class Clauses:
    """The parts of a request, the first to be carried out first.

    Attributes:
        wanted: the parts that ask for something, save what is negated.
        negated: what the speaker does not want.
        rest: the wanted parts in the order of the text, as one text.
        ordered: the text says in which order to carry out.
    """

    wanted: tuple[Clause, ...]
    negated: tuple[Clause, ...]
    rest: str
    ordered: bool


def split(text: str) -> Clauses | None:
    """Cut a text into clauses; None where it is in one piece and nothing is negated."""
    parts = cut(text)
    if all(p.negated for p in parts):
        parts = [replace(p, text=p.raw, negated=False) if "let go" in p.marks else p for p in parts]
    if sum(p.asks for p in parts) < 2 and not any(p.negated for p in parts):
        return None
    return _arrange(parts)


def without_lead_in(text: str) -> str:
    """Return a text without thanks, refusals and second thoughts in front of it; they answer what was said before."""
    found = _LEAD_IN.match(text[:MOST_CHARACTERS])
    return text[found.end() :] if found else text


def cut(text: str) -> list[Clause]:
    """Cut a text into clauses, in its own order."""
    parts: list[Clause] = []
    for sentence in _SENTENCE.split(_plain(text[:MOST_CHARACTERS])):
        opened, pending, sequence = len(parts), "", _SEQUENCE.match(sentence) is not None
        for raw in filter(_WORD.search, _BREAK.split(sentence)):
            if parts and _TAKES_BACK.fullmatch(raw.strip()):
                parts = [replace(p, negated=True, firm=True) for p in parts]
                continue
            clause = _open(f"{pending}{raw}", len(parts) == opened)
            pending = f"{pending}{raw} "[-MOST_PENDING:] if not clause.text else ""  # "and" of "and then" opens the next clause
            if not clause.text or (clause.negated and not _WORD.search(clause.text)):  # ", no?" asks
                continue
            inside = len(parts) > opened
            if len(parts) >= MOST_CLAUSES or (inside and _belongs(clause, parts[-1], sequence)):
                parts[-1] = _join(parts[-1], clause)
            else:
                parts.append(clause)
    return parts


def _plain(text: str) -> str:
    """Write letters, apostrophes, blanks and "do n't" in one way, so that no typography hides a negation."""
    return _APART.sub("", _BLANKS.sub(" ", normalize("NFKC", text).translate(_APOSTROPHES))).strip()


def _open(raw: str, opens: bool) -> Clause:
    """Strip a clause of the function words that it opens with."""
    text, marks = raw.strip(), set[str]()
    taken_back = _RETRACTS.match(text)
    text = text[taken_back.end() :] if taken_back else text
    while found := _HEAD.match(text):
        marks.add(found["time"].lower().removeprefix("only ") if found["time"] else found.lastgroup or "")
        text = text[found.end() :]
    let_go = _LETTING_GO.match(text)
    asked = text.endswith("?") and text[:3].lower() == "no "  # "no drift in the model?"
    negator = None if asked or _NO_NEGATION.match(text) else _NEGATED.match(text) or let_go
    marks |= {"let go"} if let_go else set()
    forbidden = _FORBIDDEN.search(text) if not text.endswith("?") else None
    forbidden = None if forbidden and _REASON.search(text, 0, forbidden.start()) else forbidden
    negated = negator is not None or forbidden is not None or _NOT_NEEDED.search(text) is not None
    firm = _FIRM.match(text) is not None
    marks |= {"retracts"} if negated and (taken_back or _ALL.search(text)) else set()
    clear = bool(marks & _TIMES or _STARTS_ASKING.match(text)) or text.endswith("?")
    asks = clear or "also" in marks or not (text.endswith(":") or _TELLING.match(text) or _STATES.match(text))
    if marks & _TIMES:  # "before you retrain" speaks of retraining
        text = _SUBJECT.sub("", text, count=1)
    text = _POLITE.sub("", text[negator.end() :] if negator else text).strip(" ,")
    return Clause(raw.strip(), text, frozenset(marks), negated, firm, asks, clear, opens)


def _belongs(clause: Clause, before: Clause, sequence: bool) -> bool:
    """Say whether a break inside a sentence is none: the clause goes on with the one before it.

    In a `sequence`, a sentence of the form "A, B, then C", a comma too may part two requests.
    """
    after_comma = before.raw.endswith(",")
    if before.opens and before.marks & _TIMES:
        return not (after_comma or _STARTS_ASKING.match(clause.raw))
    if clause.negated or clause.marks & _TIMES:
        return False
    asking = _STARTS_ASKING.match(clause.raw) is not None
    if before.negated:
        listed = after_comma and not (asking or clause.marks) and _LISTED.match(clause.raw)  # "don't train, tune or deploy"
        return bool(listed) or not (after_comma or asking or clause.marks)
    if clause.raw[:4].lower() == "and " and _PAIR.search(before.raw):
        return True
    if "then" in clause.marks:
        return bool(_CONDITION.match(before.raw))
    if clause.marks & {"but", "link", "also"}:
        return not (clause.asks or clause.marks & {"but"})
    return not (after_comma and (asking or (sequence and clause.asks)))


def _join(before: Clause, clause: Clause) -> Clause:
    raw, text = f"{before.raw} {clause.raw}", f"{before.text} {clause.raw}"
    return replace(before, raw=raw, text=text, asks=before.asks or raw.endswith("?"))


def _arrange(parts: list[Clause]) -> Clauses:
    """Put the clauses in the order of carrying out."""
    order: list[Clause] = []
    waiting: Clause | None = None  # "before A, B": A comes after B
    for part in parts:
        turned = bool(part.marks & {"after", "once", "until"}) and not part.opens and bool(order)
        if "until" in part.marks and turned:  # "don't deploy until it is tested" asks for both
            order[-1] = replace(order[-1], negated=False)
        if part.opens and part.marks & {"before", "prior to"} and not part.negated:
            waiting = part
            continue
        order.insert(_place(part, order, turned), part)
        if waiting is not None and not part.negated:
            order, waiting = [*order, waiting], None
    order += [waiting] if waiting is not None else []
    spared = {p.raw for p in order if not p.negated}
    return Clauses(
        wanted=tuple(p for p in order if p.asks and not p.negated),
        negated=tuple(p for p in order if p.negated),
        rest=" ".join(p.raw for p in parts if p.raw in spared),
        ordered=any(p.marks & _ORDERING or _LAST_THEN.search(p.text) or _LAST_FIRST.search(p.text) for p in parts),
    )


def _place(part: Clause, order: list[Clause], turned: bool) -> int:
    if turned:
        return len(order) - 1
    goes_first = ("first" in part.marks and "but" in part.marks) or _LAST_FIRST.search(part.text) is not None
    return 0 if goes_first else len(order)
