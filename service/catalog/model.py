"""The catalogue's types. Everything that names an intent or an agent comes from here, never from code."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AnyHttpUrl, Field, StringConstraints

from service.contracts.model import Contract
from service.contracts.query import EntityType

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Spelling = Annotated[str, StringConstraints(min_length=1, max_length=120)]
TEMPLATE = "template"  # the fallback that needs no agent: a fixed text


class Tier(Contract):
    """The defaults of a tier.

    `fallback` is an agent, `template`, or null for none; a null timeout means that each agent must give its own.
    """

    timeout_ms: Annotated[int, Field(gt=0)] | None
    max_retries: Annotated[int, Field(ge=0, le=10)]
    fallback: Name | None


class Agent(Contract):
    """A dispatchable agent. Timeout, retries and fallback come from its tier unless it sets its own."""

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


class Intent(Contract):
    """An intent and the agents that serve it: the routing table's row.

    `wish` completes "Do you want to ..." in a clarifying question; `citation` is the kind of source that its answers rest on; `commands`
    are the verbs of a plain command to an agent whose work cannot be undone.
    """

    name: Name
    description: Annotated[str, StringConstraints(min_length=10)]
    wish: Annotated[str, StringConstraints(min_length=3)]
    primary_agent: Name
    supporting_agents: tuple[Name, ...] = ()
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

    def commands_of(self, agent: str) -> tuple[str, ...]:
        """Return the commands of all intents that the agent serves, first or supporting."""
        served = (i for i in self.intents if agent == i.primary_agent or agent in i.supporting_agents)
        return tuple(dict.fromkeys(command for intent in served for command in intent.commands))

    def intent_of(self, agent: str) -> str | None:
        """Return the first intent that the agent is primary for, or None."""
        return next((i.name for i in self.intents if i.primary_agent == agent), None)
