"""What a request to deploy a model says: the step, the share, the versions, and what no agent here can do. It knows no registry."""

import re
from dataclasses import dataclass
from enum import StrEnum

from service.agents.finding import AgentFailure
from service.agents.kpi import normal_form
from service.agents.training.window import replace_number_words


class Step(StrEnum):
    """What is to be done with a version."""

    PROMOTE = "promote"
    STAGE = "stage"
    ROLL_BACK = "roll_back"
    RETIRE = "retire"
    SHADOW = "shadow"
    CANARY = "canary"
    HOLD = "hold"
    STATUS = "status"


_DAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_REGIONS = r"(?:north ?east|south ?east|south ?west|mid ?west|north|south|west|east)(?:ern)?"
_GROUP = (
    rf"(?:{_REGIONS}|pilot|eu|us|emea|german\w*|canada|region\w*|territor\w*|districts?|tablets?|field team|team|brand|state\w*|office)"
)
_IMPOSSIBLE = (
    (
        rf"tonight|tonite|tomorrow|next (?:week|month)|(?:on|from|until|till|as of|this) (?:next )?{_DAYS}(?: night| morning)?(?! s)|"
        rf"{_DAYS} (?:night|morning|\d)|"
        r"(?:after|at|before) \d{1,2} ?(?:am|pm|h|00|30)\b|by noon|at noon|midnight|on (?:the )?\d{1,2}(?:st|nd|rd|th)?(?: of)? "
        r"(?:january|february|march|april|may|"
        r"june|july|august|september|october|november|december)|on \d{1,2} \w+ember|in (?:an hour|two hours|\d+ hours)|window (?:sat|"
        r"sun)|a week later|every \w+day|starting (?:\w+day|tomorrow)",
        "do something at a later time; ask again when it is time",
    ),
    (
        r"rest (?:api|service|interface|endpoint)|endpoints?|endpiont|apis?|autoscal\w*|replicas?|gateway|route|real time|batch|cluster|"
        r"server|crm|dashboard|container|url",
        "set up or take down an endpoint, a batch job or a server",
    ),
    (
        rf"(?:users?|hcps?|reps?|doctors|docs) (?:in the \w+ )?(?:only|first)|{_GROUP} (?:users?|hcps?|reps?|doctors)? ?(?:only|first)|"
        r"(?:for|to) (?:the |our )?"
        rf"{_REGIONS}(?: (?:users|hcps|reps|region))?|(?:in|for|to) \w+ only|{_REGIONS} (?:users|hcps|pilot|reps|still)|pilot users|"
        r"remaining regions|one territory|smallest districts|"
        r"(?:kisqali|fabhalta|remibrutinib|cosentyx|brand) only",
        "serve single user groups or regions their own version",
    ),
    (r"behind a flag|feature flag|cut off from|cut off|config change|thresholds? (?:from|to)", "change a configuration"),
    (r"un ?retire|unretire", "undo a retirement; name the version to promote or to stage"),
    (
        r"audit is over|until the (?:audit|paperwork)|once the|as soon as|when the joint|when (?:qa|legal|compliance|the \w+) (?:signs?|"
        r"approves?)",
        "wait for something else to happen first",
    ),
)
"""Patterns over normal text, and what they ask for."""
_PAST = rf"\b(?:\w+ed|came out|went|had|was|were|ran|refit) (?:\w+ ){{0,4}}?on {_DAYS}(?: night| morning)?\b"
"""'Signed off on Tuesday' is no wish for a later time."""
_STEPS = (
    (Step.HOLD, r"hold|pause|freeze|(?:don t|do not|dont|never|not yet) (?:deploy|ship|promote|release|retire|roll|publish|push)"),
    (
        Step.ROLL_BACK,
        r"roll(?:ed|ing)? ?back|rollback|undo|revert|put back|restore|reinstate|go back|back to (?:what|the|v|version|last|yesterday\w*|"
        r"\d)|previous version back|"
        r"(?:old|previous|former) (?:one|model|version|scorer) back|put (?:the )?(?:\w+ ){0,3}back|fall back|predecessor",
    ),
    (
        Step.RETIRE,
        r"retire\w*|pension off|decommission\w*|sunset|offline|out of (?:service|circulation)|off (?:the )?(?:air|live|production|prod)|"
        r"take (?:\w+ ){1,4}down|mothball\w*|stop serving|kill switch|disable|"
        r"shut (?:it )?off|switch (?:it )?off|pull it|bench the|archive",
    ),
    (Step.SHADOW, r"shadow|dark launch"),
    (Step.CANARY, r"canary|ramp up|\d{1,3} ?(?:percent|per cent|pct) (?:of|canary|to|traffic)|traffic to the|share of (?:the )?traffic"),
    (Step.STAGE, r"to staging|into staging|in staging|staging area|stage|staging|pre ?prod"),
    (
        Step.PROMOTE,
        r"promot\w*|deploy\w*|live|production|prod|ship|launch|release\w*|publish|champion|serve[ds]?|serving|switch|swap\w*|roll(?:ed)? "
        r"out|rollout|in front of|"
        r"default|active|enable|flip|to where the field|(?:be|in) use|go to 100|make it (?:the one|available)|cut over|take over|let the "
        r"reps have|for the (?:real )?users|sees? it",
    ),
)
"""In the order of their precedence: who says 'roll back the release' wants no release."""
_STATUS = r"^(?:which|what) (?:steps?|versions?|models?)\b(?!.*\b(?:swap|ship|go|switch|put|make)\b)"
_FOLLOW_UPS = (
    (r"if (?:there are )?(?:no|nothing|quiet|all)|then (?:all|the rest|everybody|\d)|widen|bump|later|a day between", "Later steps are "
        "not taken on their own: ask again when the condition holds."),
    (r"by (?:the )?(?:monday|friday|end|q\d|\d)|this week|until monday|till monday|before the", "The change is made at once; no date is "
        "kept."),
    (r"archive|artefacts|artifacts|shut off", "The artifacts stay in the registry: only aliases and tags change."),
    (r"current|tag it", None),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """What is asked: `versions` are the numbers named, `run` the beginning of a run id; `wants_older`: it says 'previous'."""

    step: Step
    text: str
    versions: tuple[str, ...]
    run: str | None
    share: float | None
    wants_older: bool
    notes: tuple[str, ...]


def read_request(question: str) -> DeployRequest:
    """Read a request to deploy.

    Raises:
        AgentFailure: It asks for something that no agent can do, or names no step (`unsupported_request`). Then nothing is done.
    """
    percent = re.sub(r"(\d)\s*%", r"\1 percent ", question)
    text = replace_number_words(normal_form(re.sub(r"(\d)\.(\d)", r"\1point\2", percent.replace("_", " ").replace("->", " to "))))
    text = re.sub(r"(?<=\d)point(?=\d)", ".", text)
    step = Step.STATUS if re.search(_STATUS, text) else _first_step(text)
    if step is Step.HOLD and " but " in text:
        step = _first_step(text.split(" but ", 1)[1]) or step
    if step is Step.STAGE and re.search(r"\b(?:sandbox|staging) to prod", text):
        step = Step.PROMOTE
    if step not in {Step.HOLD, Step.STATUS}:
        ahead = re.sub(_PAST, " ", text)
        asked = [(found[0], what) for pattern, what in _IMPOSSIBLE if (found := re.search(rf"\b(?:{pattern})\b", ahead))]
        if asked:
            words = "; ".join(f"{what} ('{word.strip()}')" for word, what in asked)
            raise AgentFailure(
                "unsupported_request",
                f"Nothing was changed. Only the aliases of registered versions can be moved, now and for everybody; no agent can {words}.",
            )
    if step is None:
        steps = ", ".join(one.value.replace("_", " ") for one in Step if one not in {Step.HOLD, Step.STATUS})
        raise AgentFailure("unsupported_request", f"Nothing was changed: the request names no step. Possible are: {steps}.")
    share = re.search(r"\b(\d{1,3}(?:\.\d+)?) ?(?:percent|per cent|pct)\b", text)
    run = re.search(r"\brun (?:id )?((?=[0-9a-f]*\d)[0-9a-f]{3,32})\b", text)
    return DeployRequest(
        step=step,
        text=text,
        versions=_versions(text, step),
        run=run[1] if run else None,
        share=None if share is None else float(share[1]) / 100.0,
        wants_older=bool(re.search(r"\b(?:old|previous|former|earlier|prior|last week s|yesterday s|yesterdays)\b", text)),
        notes=tuple(note for pattern, note in _FOLLOW_UPS if note and re.search(rf"\b(?:{pattern})\b", text)),
    )


def _first_step(text: str) -> Step | None:
    return next((step for step, pattern in _STEPS if re.search(rf"\b(?:{pattern})\b", text)), None)


def _versions(text: str, step: Step) -> tuple[str, ...]:
    """Return the version numbers named, as text ('5', '2.3'). Of several, the one to go to is kept; a retirement keeps all."""
    text = re.sub(r"\b(?:instead of|rather than|from) (?:v|version |release )?\d+(?:\.\d+)*\b", " ", text)
    text = re.sub(r"\bkeep (?:v|version |release )?\d+(?:\.\d+)* at hand\b", " ", text)
    number = r"(?:v ?|version |versions |release |candidate |revision )(\d{1,4}(?:\.\d+)*)"
    found = re.findall(rf"\b{number}\b", text)
    lists = re.search(rf"\b{number}(?:(?: and| or|) (?:v ?|version )?(\d{{1,4}}))\b", text)
    if lists and step is Step.RETIRE:
        found = [*found, lists[2]]
    goal = {Step.ROLL_BACK: r"(?:back to|restore|reinstate|put back)", Step.PROMOTE: r"(?:with|by|to)"}.get(step)
    if goal and (aimed := re.search(rf"\b{goal} (?:v ?|version |release )?(\d{{1,4}}(?:\.\d+)*)\b(?! percent)", text)):
        found = [aimed[1]]
    unique = tuple(dict.fromkeys(found))
    return unique if step is Step.RETIRE else unique[:1]
