"""Do the three files agree? Every name must lead to an agent or an intent, every fallback chain must end, every address be safe.

The checks read the raw data, so that they run, and find what they can, even where a file breaks its shape elsewhere.
"""

from collections.abc import Mapping
from string import Formatter

from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

from service.catalog.expression import fault_in
from service.catalog.files import did_you_mean
from service.catalog.model import TEMPLATE
from service.catalog.source import Document, NodePath
from service.catalog.spelling import spelling_key, words_of

_OWN_HEADERS = frozenset(
    "host connection keep-alive content-length content-type content-encoding transfer-encoding te trailer upgrade expect accept-encoding"
    " x-deadline-ms x-correlation-id".split()
)
_ADDRESS = TypeAdapter(AnyHttpUrl)


def check_agents(agents: Document, known: list[str]) -> None:
    """Check names, tiers, fallbacks, addresses and the template text of agents.yaml."""
    _check_duplicates(agents, "agents", "agent")
    acting = {
        name for entry in agents.entries("agents") if agents.get(*entry, "idempotent") is False for _, name in agents.texts(*entry, "name")
    }
    for path, name in agents.texts("default_agent"):
        _check_known(agents, path, name, known, what="agent")
        _check_only_reads(agents, path, name, acting)
    tiers = agents.get("tiers")
    for tier in tiers if isinstance(tiers, dict) else ():
        for path, name in agents.texts("tiers", tier, "fallback"):
            _check_known(agents, path, name, [*known, TEMPLATE], what="fallback")
            _check_only_reads(agents, path, name, acting)
    for entry in agents.entries("agents"):
        for path, name in agents.texts(*entry, "fallback"):
            _check_known(agents, path, name, [*known, TEMPLATE], what="fallback")
            _check_only_reads(agents, path, name, acting)
        tier_number = agents.get(*entry, "tier")
        if isinstance(tiers, dict) and type(tier_number) is int and 0 <= tier_number <= 5 and str(tier_number) not in tiers:
            agents.report((*entry, "tier"), f"tier {tier_number} is not described under tiers; add it there.")
        for path, name in agents.texts(*entry, "name"):
            if name == TEMPLATE:
                agents.report(path, f"'{TEMPLATE}' is the fallback without an agent; name this agent otherwise.")
    _check_addresses(agents)
    _check_keys(agents)
    _check_template(agents)


def _check_only_reads(agents: Document, path: NodePath, name: str, acting: set[str]) -> None:
    """Check that nobody is called unasked who acts: the user agreed to another agent's work, and that may have been done already."""
    if name in acting:
        agents.report(path, f"'{name}' has idempotent: false, so it is called only when it is asked for; name an agent that only reads.")


def check_chains(agents: Document, fallback: Mapping[str, str | None]) -> None:
    """Check that no agent's chain of fallbacks comes back to an agent; each ring is reported once."""
    place = {name: path for entry in agents.entries("agents") for path, name in agents.texts(*entry, "name")}
    done: set[str] = set()
    for start in fallback:
        chain: list[str] = []
        name: str | None = start
        while name is not None and name in fallback and name not in done and name not in chain:
            chain.append(name)
            name = fallback[name]
        if name is not None and name in chain:
            ring = [*chain[chain.index(name) :], name]
            entry = place[ring[0]][:-1]
            sentence = f"the fallbacks go round in a circle: {' -> '.join(ring)}; set one of them to another agent, {TEMPLATE} or null."
            agents.report((*entry, "fallback") if (*entry, "fallback") in agents.lines else entry, sentence)
        done.update(chain)


def check_intents(intents: Document, known: list[str] | None) -> None:
    """Check that each intent is there once and names agents that exist (`known`, None when agents.yaml cannot be read)."""
    _check_duplicates(intents, "intents", "intent")
    names = [name for entry in intents.entries("intents") for _, name in intents.texts(*entry, "name")]
    for path, name in intents.texts("fallback_intent"):
        _check_known(intents, path, name, names, what="intent")
    for entry in intents.entries("intents"):
        seen: set[str] = set()
        for path, name in [*intents.texts(*entry, "primary_agent"), *intents.texts(*entry, "supporting_agents")]:
            if known is not None:
                _check_known(intents, path, name, known, what="agent")
            if name in seen:
                intents.report(path, f"the agent '{name}' is named twice for one intent; remove one.")
            seen.add(name)


def check_pipelines(intents: Document, known: list[str] | None) -> None:
    """Check that each pipeline begins with the primary agent, names agents that exist, each once, and reads earlier steps only."""
    for entry in intents.entries("intents"):
        earlier: list[str] = []
        for step in intents.entries(*entry, "pipeline"):
            for path, source in ((p, s) for name in _keys(intents, *step, "inputs") for p, s in intents.texts(*step, "inputs", name)):
                _check_known(intents, path, source.partition(".")[0], earlier, what="earlier step")
                if "." not in source:
                    intents.report(path, f"'{source}' names an agent only; add a field of its primary_output, such as {source}.summary.")
            for path, name in intents.texts(*step, "agent"):
                if known is not None:
                    _check_known(intents, path, name, known, what="agent")
                if not earlier and name != (primary := intents.get(*entry, "primary_agent")):
                    intents.report(path, f"the pipeline begins with '{name}', but primary_agent is '{primary}'; they must be the same.")
                if name in earlier:
                    intents.report(path, f"the agent '{name}' is in the pipeline twice; remove one.")
                earlier.append(name)


def _keys(document: Document, *path: str | int) -> list[str]:
    value = document.get(*path)
    return list(value) if isinstance(value, dict) else []


def check_entities(entities: Document) -> None:
    """Check that each spelling means one value and that each pattern is safe."""
    owners: dict[str, tuple[NodePath, str]] = {}
    kinds = entities.get("terms")
    for kind in kinds if isinstance(kinds, dict) else ():
        for entry in entities.entries("terms", kind):
            for path, text in [*entities.texts(*entry, "value"), *entities.texts(*entry, "aliases")]:
                _check_spelling(entities, path, text, entry, owners)
    kinds = entities.get("patterns")
    for kind in kinds if isinstance(kinds, dict) else ():
        for path, expression in entities.texts("patterns", kind):
            if fault := fault_in(expression):
                entities.report(path, fault)


def _check_spelling(entities: Document, path: NodePath, text: str, entry: NodePath, owners: dict[str, tuple[NodePath, str]]) -> None:
    words = words_of(text)
    if not words or words[0].start != 0 or words[-1].stop != len(text):
        entities.report(path, f"the term '{text}' must begin and end with a letter or a digit; remove other signs there.")
        return
    owner, first = owners.setdefault(spelling_key(text), (entry, text))
    if owner != entry:
        value = entities.get(*owner, "value")
        line = entities.line(owner)
        entities.report(
            path, f"the term '{text}' already means '{value}' (line {line}, as '{first}'); a term has one meaning, so remove one."
        )


def _check_duplicates(document: Document, key: str, what: str) -> None:
    first: dict[str, NodePath] = {}
    for entry in document.entries(key):
        for path, name in document.texts(*entry, "name"):
            if first.setdefault(name, path) != path:
                line = document.line(first[name])
                document.report(path, f"the {what} '{name}' is described twice (first on line {line}); remove or rename one.")


def _check_known(document: Document, path: NodePath, name: str, known: list[str], *, what: str) -> None:
    if name not in known:
        document.report(path, f"unknown {what} '{name}'. {did_you_mean(name, known)}")


def _check_addresses(agents: Document) -> None:
    owners: dict[str, tuple[NodePath, str]] = {}
    for entry in agents.entries("agents"):
        agent = str(agents.get(*entry, "name"))
        for path, text in agents.texts(*entry, "urls"):
            if fault := address_fault(text):
                agents.report(path, f"the address of '{agent}' {fault}")
                continue
            if agents.get(*entry, "tls") is not None and text[:7].lower() == "http://":
                agents.report(
                    path, f"'{agent}' has tls files, but its address begins with http://, which sends in clear text; write https://."
                )
            address = str(_read_address(text)).rstrip("/")
            first, owner = owners.setdefault(address, (path, agent))
            if first != path:
                agents.report(path, f"'{agent}' has the same address as '{owner}' (line {agents.line(first)}); each needs its own.")


def _check_keys(agents: Document) -> None:
    for entry in agents.entries("agents"):
        for path, name in agents.texts(*entry, "auth", "header"):
            if name.lower() in _OWN_HEADERS:
                agents.report(path, f"the header '{name}' is Pointsman's own to set; send the key in another, such as X-API-Key.")


def address_fault(text: str) -> str | None:
    """Return what makes an address unfit for an agent, or None. What is no http address at all is the shape's business."""
    address = _read_address(text)
    if address is None:
        return None
    if address.username is not None or address.password is not None:
        return "carries a user name or password; keep secrets out of the catalogue."
    if address.fragment is not None:
        return "has a fragment (#…), which is never sent; remove it."
    try:
        (address.host or "").encode("idna")
    except UnicodeError:
        return "has a host name with an empty label, or one of more than 63 characters (RFC 1035)."
    return None


def _read_address(text: str) -> AnyHttpUrl | None:
    try:
        return _ADDRESS.validate_python(text)
    except ValidationError:
        return None


def _check_template(agents: Document) -> None:
    for path, text in agents.texts("template_text"):
        try:
            fields = {field for _, field, _, _ in Formatter().parse(text) if field is not None}
        except ValueError as error:
            agents.report(path, f"template_text has a brace too few or too many ({error}); write {{{{ for a brace.")
            continue
        if fields - {"wishes"}:
            agents.report(path, f"template_text has the unknown place {{{min(fields - {'wishes'})}}}; only {{wishes}} is filled in.")
