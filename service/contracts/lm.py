"""What the LM rung is asked and what it answers, in the service's own words: no prompt and no DSPy type crosses this line."""

from service.contracts.model import Contract, JsonObject, Probability
from service.contracts.query import ConversationTurn, ParsedEntity


class AgentOption(Contract):
    """An agent that the LM may choose, with the intent it serves and what it does, in one sentence."""

    name: str
    intent: str
    description: str


class LabelledExample(Contract):
    """A labelled request near the question, passed as a demonstration."""

    text: str
    intent: str
    agent: str


class LMQuestion(Contract):
    """One routing question. The LM chooses among `options` only, best first by the student; `examples` are the nearest labelled requests.

    `programs` holds the optimized program states by signature name, from the router version that serves this request.
    """

    query: str
    history: tuple[ConversationTurn, ...] = ()
    entities: tuple[ParsedEntity, ...] = ()
    options: tuple[AgentOption, ...]
    examples: tuple[LabelledExample, ...] = ()
    router_version: str
    programs: JsonObject


class LMVerdict(Contract):
    """The LM's choice, already checked against the options of the question; `usd` is what it cost, None where nobody knows."""

    intent: str
    sub_intent: str
    primary_agent: str
    secondary_agents: tuple[str, ...]
    confidence: Probability
    rationale: str
    usd: float | None = None


class Finding(Contract):
    """What synthesis may tell the LM of one agent's answer."""

    agent_id: str
    summary: str
    evidence: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


class SynthesisQuestion(Contract):
    """What the LM is to put into words: findings, as one answer to the query. `router_version` and `programs` as in `LMQuestion`."""

    query: str
    findings: tuple[Finding, ...]
    router_version: str
    programs: JsonObject


class LMFailure(Contract):
    """The LM gave nothing usable: `reason` is one of a closed set for the metrics, `detail` a sentence for the log."""

    reason: str
    detail: str
