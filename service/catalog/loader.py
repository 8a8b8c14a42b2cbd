"""Loads the catalogue from agents.yaml, intents.yaml and entities.yaml, and refuses one that does not hold together.

All problems are reported at once, each with file and line, so that an operator corrects a catalogue in one round.
"""

from hashlib import sha256
from pathlib import Path

from pydantic import AnyHttpUrl, JsonValue, TypeAdapter, ValidationError

from service.catalog.checks import address_fault, check_agents, check_chains, check_entities, check_intents, check_pipelines
from service.catalog.files import AgentsFile, EntitiesFile, IntentsFile, parse_file
from service.catalog.model import TEMPLATE, Agent, Catalog, Pattern, Term
from service.catalog.source import Document, read_document
from service.errors import ConfigurationError

PACKAGED = Path(__file__).parent
FILES = ("agents.yaml", "intents.yaml", "entities.yaml")
_TIER_FIELDS = ("timeout_ms", "max_retries", "fallback")


def load_catalog(folder: Path | None = None, *, agents_base_url: str | None = None) -> Catalog:
    """Load and check the catalogue.

    Args:
        folder: where the three YAML files are; None is the packaged catalogue.
        agents_base_url: where the built-in agents listen; replaces the address of every agent marked `builtin`.

    Returns:
        The catalogue. Its hash depends on the files only, not on `agents_base_url`.

    Raises:
        ConfigurationError: The files have problems; the message lists every one as `file:line: sentence`.
    """
    folder = PACKAGED if folder is None else folder
    base = None if agents_base_url is None else _checked_base(agents_base_url)
    agents, intents, entities = (read_document(folder, file) for file in FILES)
    filled = _with_tier_defaults(agents)
    agents_file = parse_file(agents, AgentsFile, filled)
    intents_file = parse_file(intents, IntentsFile, intents.data)
    entities_file = parse_file(entities, EntitiesFile, entities.data)
    _cross_check(agents, intents, entities, filled)
    problems = sorted({*agents.problems, *intents.problems, *entities.problems}, key=lambda p: (FILES.index(p.file), p.line, p.sentence))
    if problems or agents_file is None or intents_file is None or entities_file is None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigurationError("\n".join([f"The catalogue in {folder} has {count}:", *map(str, problems)]))
    return Catalog(
        intents=intents_file.intents,
        agents=agents_file.agents if base is None else tuple(_rebased(agent, base) for agent in agents_file.agents),
        terms=tuple(Term(type=kind, **dict(entry)) for kind, entries in entities_file.terms.items() for entry in entries),
        fallback_intent=intents_file.fallback_intent,
        default_agent=agents_file.default_agent,
        template_text=agents_file.template_text,
        hash=_hash(agents, intents, entities),
        patterns=tuple(Pattern(type=kind, expression=text) for kind, texts in entities_file.patterns.items() for text in texts),
    )


def _cross_check(agents: Document, intents: Document, entities: Document, filled: JsonValue) -> None:
    known = [name for entry in agents.entries("agents") for _, name in agents.texts(*entry, "name")]
    check_agents(agents, known)
    check_chains(agents, _fallbacks(filled))
    check_intents(intents, known if agents.data is not None else None)
    check_pipelines(intents, known if agents.data is not None else None)
    check_entities(entities)


def _with_tier_defaults(agents: Document) -> JsonValue:
    """Return the file's data with each agent's open fields filled from its tier.

    Where the tier is broken, harmless values stand in: the tier's own problem is reported, and should not repeat with each agent.
    """
    data = agents.data
    if not isinstance(data, dict) or not isinstance(data.get("agents"), list):
        return data
    filled: list[JsonValue] = []
    for i, agent in enumerate(data["agents"]):  # type: ignore[arg-type]  # the line above saw that it is a list
        tier = agents.get("tiers", str(agents.get("agents", i, "tier")))
        filled.append({**_defaults(tier), **agent} if isinstance(agent, dict) else agent)
    return {**data, "agents": filled}


def _defaults(tier: JsonValue) -> dict[str, JsonValue]:
    harmless: dict[str, JsonValue] = {"timeout_ms": 1, "max_retries": 0, "fallback": None}
    if not isinstance(tier, dict):
        return harmless
    defaults = {name: tier[name] if _fits(name, tier.get(name)) and name in tier else harmless[name] for name in _TIER_FIELDS}
    if "timeout_ms" in tier and tier["timeout_ms"] is None:
        del defaults["timeout_ms"]  # the agent must set it, and its absence is reported
    return defaults


def _fits(name: str, value: JsonValue) -> bool:
    if name == "fallback":
        return value is None or isinstance(value, str)
    return type(value) is int and (value > 0 if name == "timeout_ms" else 0 <= value <= 10)


def _fallbacks(data: JsonValue) -> dict[str, str | None]:
    """Return each agent's fallback agent, of those agents that can be read."""
    agents = data.get("agents") if isinstance(data, dict) else None
    fallback: dict[str, str | None] = {}
    for agent in agents if isinstance(agents, list) else ():
        if isinstance(agent, dict) and isinstance(name := agent.get("name"), str):
            target = agent.get("fallback")
            fallback.setdefault(name, target if isinstance(target, str) and target != TEMPLATE else None)
    return fallback


def _checked_base(text: str) -> str:
    try:
        address = TypeAdapter(AnyHttpUrl).validate_python(text)
    except ValidationError:  # `from None`: the cause would repeat the address, which may hold a password
        raise ConfigurationError("POINTSMAN_AGENTS_BASE_URL must be an http or https address, such as http://127.0.0.1:8101.") from None
    fault = address_fault(text)
    if fault is None and address.query is not None:
        fault = "has a query (?…); remove it."
    if fault is not None:
        raise ConfigurationError(f"POINTSMAN_AGENTS_BASE_URL {fault}")
    return text.rstrip("/")


def _rebased(agent: Agent, base: str) -> Agent:
    return agent.model_copy(update={"urls": (AnyHttpUrl(f"{base}/agents/{agent.name}"),)}) if agent.builtin else agent


def _hash(*documents: Document) -> str:
    digest = sha256()
    for document in documents:
        digest.update(f"{document.file}\0{len(document.content)}\0".encode())
        digest.update(document.content)
    return digest.hexdigest()
