"""What Pointsman decides: `RouteDecision`, the body of `POST /route` and the heart of every receipt."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field

from service.contracts.model import Contract, Probability
from service.contracts.notice import Notice
from service.contracts.query import ParsedEntity


class Action(StrEnum):
    """What happens with the request."""

    DISPATCH = "dispatch"
    CLARIFY = "clarify"
    REFUSE = "refuse"
    SOCIAL = "social"


class Rung(StrEnum):
    """Who decided: the rungs of the cascade, cheapest first, and the caller's own language layer."""

    RULES = "rules"
    CALLER = "caller"
    STUDENT = "student"
    LM = "lm"
    SAFE_DEFAULT = "safe_default"


class Candidate(Contract):
    """An intent with its calibrated probability, given that the request is in scope."""

    intent: str
    probability: Probability


class RouteDecision(Contract):
    """Which agents should handle a request, and why.

    `intents` are what is asked for, in the order of carrying out; `candidates` are read off the text as a whole, so beside several intents
    their first need not be the first intent. `asked` is the text that is carried out where it is not the question itself: the request
    before a "yes" to Pointsman's question, or the offer that is accepted. `propensity` is the probability with which the logged policy
    makes this choice; it is 1 unless it explores. Where it does, `alternative` is the intent that it would have chosen otherwise.
    """

    decision_id: UUID
    query_id: UUID
    action: Action
    intent: str | None
    confidence: Probability
    primary_agent: str | None
    secondary_agents: tuple[str, ...] = ()
    flow: str | None = None
    intents: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    entities: tuple[ParsedEntity, ...] = ()
    oos_score: Probability
    rung: Rung
    router_version: str
    policy: str
    propensity: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    alternative: str | None = None
    rationale: str
    question: str | None = None
    asked: str | None = None
    warnings: tuple[Notice, ...] = ()
    timings_ms: dict[str, float] = Field(default_factory=dict)
