"""The catalogue's types. Everything that names an intent or an agent comes from here, never from code."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AnyHttpUrl, Field, StringConstraints

from service.contracts.model import Contract
from service.contracts.query import EntityType

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Spelling = Annotated[str, StringConstraints(min_length=1, max_length=120)]
Header = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]{0,127}$")]
_KEY = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_PARTS = rf"raw_query|request|user_id|session_id|conversation_history|entities(\.({'|'.join(EntityType)}))?|context(\.{_KEY})?"
Received = Annotated[str, StringConstraints(pattern=f"^({_PARTS})$")]  # a part of the request
OutputPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}$")]
TEMPLATE = "template"  # the fallback that needs no agent: a fixed text


class Tier(Contract):
    """The defaults of a tier.

    `fallback` is an agent, `template`, or null for none; a null timeout means that each agent must give its own.
    """

    timeout_ms: Annotated[int, Field(gt=0)] | None
    max_retries: Annotated[int, Field(ge=0, le=10)]
    fallback: Name | None


class AgentKey(Contract):
    """How Pointsman proves to an agent who it is: the environment variable `env` holds the whole value of the header."""

    env: Variable
    header: Header = "Authorization"


class AgentTls(Contract):
    """Files (PEM) for TLS with an agent: the authority that signed its certificate, and Pointsman's own certificate and key."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


class Agent(Contract):
    """A dispatchable agent. Timeout, retries and fallback come from its tier unless it sets its own.

    `receives` is the projection of the request that it is sent; nothing else is.
    """

    name: Name
    tier: Annotated[int, Field(ge=0, le=5)]
    description: Annotated[str, StringConstraints(min_length=10)]
    urls: Annotated[tuple[AnyHttpUrl, ...], Field(min_length=1)]
    permissions: tuple[str, ...] = ()
    timeout_ms: Annotated[int, Field(gt=0)]
    max_retries: Annotated[int, Field(ge=0, le=10)]
    fallback: Name | None
    critical_path: bool = False
    idempotent: bool = True
    builtin: bool = False
    protocol: Literal["http", "a2a"] = "http"
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = 32
    auth: AgentKey | None = None
    tls: AgentTls | None = None
    receives: tuple[Received, ...] = ("raw_query", "request", "entities")
    required_entities: tuple[EntityType, ...] = ()
    required_output: tuple[str, ...] = ()
    required_confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0

    @property
    def priority(self) -> int:
        """1 on the critical path, else 2 + tier; lower goes first."""
        return 1 if self.critical_path else 2 + self.tier

    @property
    def fallback_agent(self) -> str | None:
        """The agent that stands in, or None where there is none or the template answers."""
        return None if self.fallback == TEMPLATE else self.fallback


class Step(Contract):
    """One agent of a pipeline.

    `inputs` are what it gets of earlier steps' output, name in its context → `agent.field.field`. `gate` is a field of its own output that
    must be true, or else the pipeline stops with `qc_gate_blocked`.
    """

    agent: Name
    inputs: dict[Name, OutputPath] = Field(default_factory=dict)
    gate: OutputPath | None = None


class Intent(Contract):
    """An intent and the agents that serve it: the routing table's row.

    `wish` completes "Do you want to ..." in a clarifying question; `citation` is the kind of source that its answers rest on; `commands`
    are the verbs of a plain command to an agent whose work cannot be undone; `pipeline` are the steps, where one agent is not enough.
    """

    name: Name
    description: Annotated[str, StringConstraints(min_length=10)]
    wish: Annotated[str, StringConstraints(min_length=3)]
    primary_agent: Name
    supporting_agents: tuple[Name, ...] = ()
    pipeline: tuple[Step, ...] = ()
    citation: Literal["causal_path", "agent_activity", "business_metric", "ml_model"] = "agent_activity"
    follow_ups: tuple[str, ...] = ()
    commands: tuple[Annotated[str, StringConstraints(min_length=2, pattern=r"^[a-z][a-z' -]*$")], ...] = ()


class Term(Contract):
    """One value of the gazetteer with its other spellings."""

    type: EntityType
    value: Spelling
    aliases: tuple[Spelling, ...] = ()


class Pattern(Contract):
    """A regular expression whose whole match is an entity, such as an id."""

    type: EntityType
    expression: str


@dataclass(frozen=True)
class Catalog:
    """All that this deployment can do. `hash` is the SHA-256 of the files, kept with every decision."""

    intents: tuple[Intent, ...]
    agents: tuple[Agent, ...]
    terms: tuple[Term, ...]
    fallback_intent: str
    default_agent: str
    template_text: str
    hash: str
    patterns: tuple[Pattern, ...] = ()

    @cached_property
    def intent(self) -> dict[str, Intent]:
        """Intents by name."""
        return {i.name: i for i in self.intents}

    @cached_property
    def agent(self) -> dict[str, Agent]:
        """Agents by name."""
        return {a.name: a for a in self.agents}

    @cached_property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The texts that say what an intent is about, by name."""
        return {i.name: (i.description, i.wish, self.agent[i.primary_agent].description) for i in self.intents}

    def is_reading(self, intent: str) -> bool:
        """Say whether carrying an intent out changes nothing: one idempotent agent, no pipeline."""
        spec = self.intent[intent]
        return not spec.pipeline and self.agent[spec.primary_agent].idempotent

    def commands_of(self, agent: str) -> tuple[str, ...]:
        """Return the commands of all intents that the agent serves, first or supporting."""
        served = (i for i in self.intents if agent == i.primary_agent or agent in i.supporting_agents)
        return tuple(dict.fromkeys(command for intent in served for command in intent.commands))

    def intent_of(self, agent: str) -> str | None:
        """Return the first intent that the agent is primary for, or None."""
        return next((i.name for i in self.intents if i.primary_agent == agent), None)
