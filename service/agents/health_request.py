"""What a question of health asks about, and which of it this agent can measure. It knows no data."""

import re
from dataclasses import dataclass

from service.agents.health_check import Component
from service.agents.kpi import normal_form

_AGENTS = "agents"
_TOPICS = (
    (r"load(?:s|ed)?|file|feed|refresh\w*|still say|numbers from|data|extract", "the data's load", "data_freshness"),
    (r"services?|endpoints?|something down|is something down|down|503|502|5xx|blank page|spinning|redis|kafka|pods?|componets?"
     r"|components?|up and running|orchestrator|database|api", "single services", "dependencies"),
    (r"agents?", "the agents", _AGENTS),
    (r"memory|ram|oom", "memory", "process_memory"),
    (r"p\d\d|latenc\w+|slow\w*|lag(?:ging)?|crawling|timeouts?|choking|spinning|response times?", "response times", None),
    (r"errors?|5xx|exceptions?|failing|throwing", "errors", None),
    (r"queues?|jobs?|pipelines?|airflow|retrain\w*|ran green|batch|dags?", "queues, jobs and pipelines", None),
    (r"uptime|sla|availability|outages?", "uptime over a period", None),
)  # fmt: skip
"""Pattern, what it is called, and the component that measures it (None: nothing here does)."""
METRICS_AGENT = "observability_connector"


@dataclass(frozen=True, slots=True)
class HealthRequest:
    """The topics that the question names, each with the component that measures it."""

    topics: tuple[tuple[str, str | None], ...]

    @property
    def asks_agents(self) -> bool:
        """Whether the question is about the agents."""
        return any(component == _AGENTS for _, component in self.topics)

    @property
    def asks_services(self) -> bool:
        """Whether the question is about single services."""
        return any(component == "dependencies" for _, component in self.topics)

    def unmeasured(self, components: list[Component]) -> list[str]:
        """Return the named topics that no measured component covers."""
        measured = {_AGENTS, *(one.name for one in components if one.score is not None)}
        return [name for name, component in self.topics if component not in measured]

    def share_measured(self, components: list[Component]) -> float:
        """Return the measured part of what is asked: the named topics, and the state of the whole, which every such question is about."""
        return 1.0 - len(self.unmeasured(components)) / (1 + len(self.topics))

    def leading(self, components: list[Component]) -> list[Component]:
        """Return the measured components that the question is about."""
        asked = {component for _, component in self.topics}
        return [one for one in components if one.name in asked and one.score is not None]


def read_health_request(question: str) -> HealthRequest:
    """Return what the question asks about."""
    text = normal_form(question)
    topics = tuple((name, component) for pattern, name, component in _TOPICS if _found(pattern, text))
    return HealthRequest(topics)


def _found(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![^ ])(?:{pattern})(?![^ ])", text) is not None
