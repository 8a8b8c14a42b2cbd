"""The packaged catalogue is the specification's, and a broken one is refused with every problem, its file and its line."""

import re
import shutil
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from service.catalog.files import AgentsFile, EntitiesFile, IntentsFile, TermEntry
from service.catalog.loader import FILES, PACKAGED, load_catalog
from service.catalog.model import TEMPLATE, Agent, Catalog, Intent, Step, Tier
from service.errors import ConfigurationError
from tests.conftest import ROOT

# Typed from shared/seeds/orchestrator_contracts.md, "Routing Rules" and "Sequential Dispatch", not read from the YAML.
ROUTING_TABLE = {
    "causal_impact": ("causal_impact", 2, ("explainer",)),
    "gap_analysis": ("gap_analyzer", 2, ("resource_optimizer",)),
    "heterogeneous": ("heterogeneous_optimizer", 2, ("prediction_synthesizer",)),
    "experiment_design": ("experiment_designer", 3, ("causal_impact",)),
    "prediction": ("prediction_synthesizer", 4, ("explainer", "model_deployer")),
    "explanation": ("explainer", 5, ()),
    "health_check": ("health_score", 3, ("drift_monitor", "observability_connector")),
    "drift_check": ("drift_monitor", 3, ("health_score", "data_preparer")),
    "resource_optimize": ("resource_optimizer", 4, ("gap_analyzer",)),
    "ml_training": ("scope_definer", 0, ("data_preparer", "model_selector", "model_trainer")),
    "feature_analysis": ("feature_analyzer", 0, ("explainer",)),
    "model_deploy": ("model_deployer", 0, ("model_trainer",)),
}
TIMEOUTS = {2: 120_000, 3: 60_000, 4: 20_000, 5: 180_000}  # milliseconds; tier 0 varies, tier 1 is Pointsman itself
RETRIES = {0: 1, 1: 0, 2: 2, 3: 2, 4: 3, 5: 1}
FALLBACKS = {0: None, 2: "explainer", 3: "health_score", 4: "explainer", 5: TEMPLATE}
AGENTS, INTENTS, ENTITIES = FILES
HTTP = "urls: [http://127.0.0.1:8101/agents/explainer"
ID = r"- '\bHCP[-_ ]?[0-9]{2,8}\b'"
WISH = "wish: plan a test or pilot"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The packaged catalogue."""
    return load_catalog()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged files, to be broken."""
    for file in FILES:
        shutil.copy(PACKAGED / file, tmp_path / file)
    return tmp_path


def replace(folder: Path, file: str, old: str, new: str) -> int:
    """Replace the first `old` by `new` and return the line on which it begins."""
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


def problems(folder: Path) -> list[str]:
    """Return the lines of problems that loading the folder reports."""
    with pytest.raises(ConfigurationError) as raised:
        load_catalog(folder)
    return str(raised.value).splitlines()[1:]


@pytest.mark.parametrize("intent", ROUTING_TABLE)
def test_each_intent_has_the_agents_of_the_specification(catalog: Catalog, intent: str) -> None:
    """The routing table is the specification's, row by row."""
    primary, tier, supporting = ROUTING_TABLE[intent]

    row = catalog.intent[intent]

    assert (row.primary_agent, catalog.agent[primary].tier, row.supporting_agents) == (primary, tier, supporting)


def test_there_are_the_specified_intents_in_order_and_16_agents(catalog: Catalog) -> None:
    """Nothing is added to the twelve intents, and the agents are those of the table and the pipeline."""
    named = {agent for primary, _, supporting in ROUTING_TABLE.values() for agent in (primary, *supporting)}

    assert [intent.name for intent in catalog.intents] == list(ROUTING_TABLE)
    assert set(catalog.agent) == named
    assert len(catalog.agents) == 16
    assert (catalog.fallback_intent, catalog.default_agent) == ("explanation", "explainer")


def test_agents_take_timeout_retries_and_fallback_from_their_tier(catalog: Catalog) -> None:
    """The tier table is the specification's; only health_score departs from it, since it cannot stand in for itself."""
    for agent in catalog.agents:
        assert agent.max_retries == RETRIES[agent.tier]
        assert agent.timeout_ms == TIMEOUTS.get(agent.tier, agent.timeout_ms)
        assert agent.fallback == ("explainer" if agent.name == "health_score" else FALLBACKS[agent.tier])


def test_an_agents_own_null_fallback_is_kept(folder: Path) -> None:
    """An explicit null or template wins over the tier's fallback."""
    replace(folder, "agents.yaml", "  - name: drift_monitor\n", "  - name: drift_monitor\n    fallback: null\n")
    replace(folder, "agents.yaml", "  - name: gap_analyzer\n", "  - name: gap_analyzer\n    fallback: template\n")

    agents = load_catalog(folder).agent

    assert agents["drift_monitor"].fallback is None
    assert agents["gap_analyzer"].fallback == TEMPLATE


def test_the_base_address_moves_builtin_agents_only_and_leaves_the_hash(folder: Path) -> None:
    """`agents_base_url` says where the reference agents listen and is no part of the catalogue."""
    replace(folder, "agents.yaml", "agents/gap_analyzer]\n    builtin: true", "agents/gap_analyzer]")

    moved, plain = load_catalog(folder, agents_base_url="https://agents.test:9/x/"), load_catalog(folder)

    assert str(moved.agent["causal_impact"].urls[0]) == "https://agents.test:9/x/agents/causal_impact"
    assert moved.agent["gap_analyzer"].urls == plain.agent["gap_analyzer"].urls
    assert moved.hash == plain.hash


@pytest.mark.parametrize("base", ["ftp://x", "nonsense", "http://me:hunter2@x", "http://x/?a=1", "http://x/#a"])
def test_an_unfit_base_address_is_refused_without_repeating_it(base: str) -> None:
    """The base address must be plain http(s); a password in it reaches no log."""
    with pytest.raises(ConfigurationError, match="POINTSMAN_AGENTS_BASE_URL") as raised:
        load_catalog(agents_base_url=base)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("file", FILES)
def test_the_hash_depends_on_each_file(folder: Path, catalog: Catalog, file: str) -> None:
    """Equal files give an equal hash; a change in any of them gives another."""
    same = load_catalog(folder).hash
    (folder / file).write_text((folder / file).read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")

    assert same == catalog.hash
    assert load_catalog(folder).hash != same


BROKEN = {
    "unknown primary": (INTENTS, "primary_agent: gap_analyzer", "primary_agent: gap_analyser", "Did you mean 'gap_analyzer'?"),
    "unknown supporting": (
        INTENTS,
        "supporting_agents: [explainer]",
        "supporting_agents: [zzz]",
        "unknown agent 'zzz'. Known: causal_impact",
    ),
    "unknown fallback": (AGENTS, "fallback: explainer\n", "fallback: explaner\n", "unknown fallback 'explaner'. Did you mean 'explainer'?"),
    "unknown tier fallback": (
        AGENTS,
        "3: {timeout_ms: 60000, max_retries: 2, fallback: health_score}",
        "3: {fallback: helth_score}",
        "'health_score'?",
    ),
    "unknown default agent": (AGENTS, "default_agent: explainer ", "default_agent: nobody ", "unknown agent 'nobody'"),
    "unknown fallback intent": (INTENTS, "fallback_intent: explanation", "fallback_intent: explain", "Did you mean 'explanation'?"),
    "duplicate intent": (INTENTS, "name: drift_check", "name: gap_analysis", "'gap_analysis' is described twice (first on line 14)"),
    "duplicate agent": (AGENTS, "name: drift_monitor", "name: explainer", None),
    "agent named twice": (
        INTENTS,
        "supporting_agents: [gap_analyzer]",
        "supporting_agents: [resource_optimizer]",
        "named twice for one intent",
    ),
    "unknown field": (AGENTS, "critical_path: true", "critical_pat: true", "unknown field 'critical_pat'. Did you mean 'critical_path'?"),
    "text for a number": (AGENTS, "timeout_ms: 900000", "timeout_ms: soon", "'timeout_ms' is 'soon'; it must be a whole number."),
    "true for a number": (AGENTS, "timeout_ms: 900000", "timeout_ms: true", "'timeout_ms' is True; it must be a whole number."),
    "null for a number": (AGENTS, "timeout_ms: 900000", "timeout_ms: null", "'timeout_ms' is None; it must be a whole number."),
    "zero timeout": (AGENTS, "timeout_ms: 900000", "timeout_ms: 0", "it must be greater than 0"),
    "NaN": (AGENTS, "required_confidence: 0.3", "required_confidence: .nan", "it must be a finite number"),
    "infinity": (AGENTS, "required_confidence: 0.3", "required_confidence: .inf", "it must be a finite number"),
    "tier out of range": (AGENTS, "tier: 5\n", "tier: 6\n", "it must be less than or equal to 5"),
    "no url": (AGENTS, HTTP + "]", "urls: []", "'urls' is an empty list"),
    "ftp url": (AGENTS, HTTP, "urls: [ftp://h/x", "not an http or https address"),
    "no address": (AGENTS, HTTP, "urls: [nowhere", "it must be an http or https address"),
    "password in url": (AGENTS, HTTP, "urls: [http://u:hunter2@h/x", "carries a user name or password"),
    "password in ftp url": (AGENTS, HTTP, "urls: [ftp://u:hunter2@h/x", "a user name or password"),
    "empty label": (AGENTS, HTTP, "urls: [http://a..b/x", "an empty label"),
    "long label": (AGENTS, HTTP, f"urls: [http://{'a' * 64}.org/x", "more than 63 characters"),
    "tls without https": (AGENTS, HTTP + "]", HTTP + "]\n    tls: {authority: ca.pem}", "sends in clear text"),
    "a header of HTTP's own": (AGENTS, HTTP, "auth: {env: KEY, header: Content-Length}\n    " + HTTP, "Pointsman's own to set"),
    "shared url": (AGENTS, HTTP, "urls: [http://127.0.0.1:8101/agents/scope_definer", None),
    "reserved name": (AGENTS, "name: observability_connector", "name: template", "the fallback without an agent"),
    "name with capitals": (AGENTS, "name: observability_connector", "name: Observability", "lower-case letters"),
    "unknown place": (AGENTS, "template_text: >-", "template_text: >-\n  {other}", "unknown place {other}"),
    "brace too many": (AGENTS, "template_text: >-", "template_text: >-\n  {", "a brace too few or too many"),
    "broken pattern": (ENTITIES, ID, "- 'HCP([0-9]'", "not a regular expression"),
    "unbounded pattern": (ENTITIES, ID, "- '(a+)+b'", "give an upper bound"),
    "explosive pattern": (ENTITIES, ID, "- '(?:a?){40}b'", "ways from one place"),
    "pattern for nothing": (ENTITIES, ID, "- 'a?'", "matches an empty text"),
    "term of two values": (ENTITIES, "aliases: [iptacopan]", "aliases: [KISQALI]", "already means 'Kisqali'"),
    "spelling of two values": (ENTITIES, "aliases: [southern region]", "aliases: [Mid_West]", "already means 'Midwest'"),
    "term with a sign": (ENTITIES, "aliases: [iptacopan]", "aliases: [iptacopan!]", "must begin and end with a letter or a digit"),
    "unknown entity type": (ENTITIES, "  kpi:", "  colour:", "'colour' is 'colour'; it must be"),
    "python tag": (INTENTS, WISH, "wish: !!python/name:os.system ''", "is not allowed"),
    "duplicate key": (INTENTS, WISH, "name: again", "'name' is given twice"),
    "syntax error": (INTENTS, WISH, "wish: plan: a test", "this is not valid YAML"),
    "control character": (INTENTS, WISH, "wish: \x07", "control character"),
    "list as a key": (INTENTS, WISH, "[a]: b", "a key must be a plain name"),
}


@pytest.mark.parametrize(("file", "old", "new", "says"), BROKEN.values(), ids=BROKEN)
def test_a_mistake_is_reported_at_its_line(folder: Path, file: str, old: str, new: str, says: str | None) -> None:
    """Each kind of mistake gives a sentence with its file and line, and no password."""
    line = replace(folder, file, old, new)

    found = problems(folder)

    if says is not None:
        assert any(problem.startswith(f"{file}:{line}: ") and says in problem for problem in found), found
    assert not any("hunter2" in problem for problem in found)


def test_a_second_agent_of_one_name_or_address_is_reported_where_it_stands(folder: Path) -> None:
    """Of two agents with one name, or one address, the later is reported and says where the first is."""
    first = replace(folder, AGENTS, "name: drift_monitor", "name: explainer")
    second = replace(folder, AGENTS, "agents/gap_analyzer", "agents/causal_impact")

    found = problems(folder)

    assert any(f"the agent 'explainer' is described twice (first on line {first})" in problem for problem in found)
    assert f"{AGENTS}:{second}: 'gap_analyzer' has the same address as 'causal_impact' (line {second - 9}); each needs its own." in found


def test_an_agent_without_timeout_in_a_tier_without_one_is_reported(folder: Path) -> None:
    """Tier 0 has no default timeout, so each of its agents must set one."""
    line = replace(folder, AGENTS, "    timeout_ms: 900000\n", "")

    assert problems(folder) == [f"{AGENTS}:{line - 7}: the field 'timeout_ms' is missing (its tier has no default); add it."]


def test_a_tier_that_is_not_described_is_reported_once(folder: Path) -> None:
    """An agent of an unknown tier is one problem, not one for each field that it would take from the tier."""
    replace(folder, AGENTS, "  5: {timeout_ms: 180000, max_retries: 1, fallback: template}\n", "")

    (problem,) = problems(folder)

    assert "tier 5 is not described under tiers" in problem


def test_fallbacks_that_go_round_are_shown_as_a_chain(folder: Path) -> None:
    """A ring of fallbacks would never end, whether it comes from agents or from tiers; each is reported once."""
    replace(folder, AGENTS, "    fallback: explainer\n", "")
    replace(folder, AGENTS, "fallback: template}", "fallback: causal_impact}")

    found = problems(folder)

    assert [problem.split("circle: ")[1].split(";")[0] for problem in found] == [
        "causal_impact -> explainer -> causal_impact",
        "health_score -> health_score",
    ]


def test_all_problems_of_all_files_come_at_once_in_order(folder: Path) -> None:
    """An operator sees everything that is wrong in one go, file by file, from top to bottom."""
    expected = [
        (AGENTS, replace(folder, AGENTS, "default_agent: explainer ", "default_agent: nobody ")),
        (AGENTS, replace(folder, AGENTS, "tier: 5\n", "tier: none\n")),
        (INTENTS, replace(folder, INTENTS, "fallback_intent: explanation", "fallback_intent: no")),
        (INTENTS, replace(folder, INTENTS, "primary_agent: gap_analyzer", "primary_agent: gap")),
        (ENTITIES, replace(folder, ENTITIES, ID, "- '('")),
    ]

    found = problems(folder)

    assert [tuple(problem.split(":")[:2]) for problem in found] == [(file, str(line)) for file, line in expected]


def test_a_name_with_line_breaks_stays_on_one_line(folder: Path) -> None:
    """One problem is one line, whatever the file holds."""
    line = replace(folder, INTENTS, "primary_agent: gap_analyzer", f'primary_agent: "a\\n{"b" * 2_000}"')

    found = problems(folder)

    assert len(found) == 2
    assert all(problem.startswith(f"{INTENTS}:{line}: ") and len(problem) < 500 for problem in found)


CONTENTS = {
    "missing": (None, "the file is missing"),
    "empty": (b"", "must be a mapping"),
    "a list": (b"- a\n", "must be a mapping"),
    "not UTF-8": (b"intents:\n- \xff\n", "not UTF-8"),
    "too large": (b"# " + b"x" * 1_000_000, "larger than 1,000,000 bytes"),
    "alias bomb": (b"a: &a [x, x]\nb: &b [*a, *a]\nintents: [*b, *b]\n", "used twice"),
    "alias to itself": (b"intents: &a [*a]\n", "used twice"),
    "deep flow": (b"a: " + b"[" * 100_000, "not valid YAML"),
    "deep block": (b"- " * 100_000, ""),
    "moderately deep": (b"a: " + b"[" * 50 + b"]" * 50, "nested too deeply"),
    "empty list": (b"fallback_intent: a\nintents: []\n", "'intents' is an empty list"),
    "unclosed": (b"intents: [", "not valid YAML"),
    "huge number": (b"fallback_intent: a\nintents: " + b"9" * 5_000, "not a number"),
}


@pytest.mark.parametrize(("content", "says"), CONTENTS.values(), ids=CONTENTS)
def test_a_file_that_cannot_be_used_is_refused_soon(folder: Path, content: bytes | None, says: str) -> None:
    """Whatever a file holds, the answer is a sentence about that file, soon, and the other files' names are still checked."""
    (folder / INTENTS).unlink() if content is None else (folder / INTENTS).write_bytes(content)
    begun = time.perf_counter()

    found = problems(folder)

    assert time.perf_counter() - begun < 20.0  # what must not be is work without end; a busy machine takes a second for a little
    assert any(problem.startswith(f"{INTENTS}:") and says in problem for problem in found), found
    assert not any("unknown agent" in problem for problem in found)


def test_a_folder_that_is_not_there_names_every_file(tmp_path: Path) -> None:
    """A wrong POINTSMAN_CATALOG is said plainly."""
    found = problems(tmp_path / "nowhere")

    assert [problem.split(":")[0] for problem in found] == list(FILES)


PAGE = (ROOT / "docs/own-agents.md").read_text(encoding="utf-8")
PARTS: dict[str, type[BaseModel]] = {
    "agents.yaml": AgentsFile,
    "A tier": Tier,
    "An agent": Agent,
    "intents.yaml": IntentsFile,
    "An intent": Intent,
    "A step": Step,
    "entities.yaml": EntitiesFile,
    "A term": TermEntry,
}


@pytest.mark.parametrize(("heading", "part"), PARTS.items(), ids=PARTS)
def test_every_field_of_the_catalogue_is_documented_with_its_default(heading: str, part: type[BaseModel]) -> None:
    """The tables of docs/own-agents.md and the types name the same fields in the same order."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]

    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", section, re.MULTILINE))

    assert list(rows) == list(part.model_fields)
    for name, field in part.model_fields.items():
        if field.is_required():
            assert rows[name] in {"required", "its tier's"}, name
        else:
            empty = rows[name] == "none" and not field.get_default(call_default_factory=True)
            default = ", ".join(field.default) if isinstance(field.default, tuple) else str(field.default)
            assert empty or rows[name].strip("`").lower() == default.lower(), name


def test_the_documented_catalogue_can_be_loaded(tmp_path: Path) -> None:
    """An example that does not run teaches nothing."""
    agents, intents = re.findall(r"^```yaml\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for file, text in zip(FILES, (agents, intents, "terms: {}"), strict=True):
        (tmp_path / file).write_text(text, encoding="utf-8")

    assert list(load_catalog(tmp_path).intent) == ["invoices", "reminders"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("default_agent: explainer", "default_agent: model_trainer"),
        (
            "3: {timeout_ms: 60000, max_retries: 2, fallback: health_score}",
            "3: {timeout_ms: 60000, max_retries: 2, fallback: model_trainer}",
        ),
        ("  - name: drift_monitor\n", "  - name: drift_monitor\n    fallback: model_trainer\n"),
    ],
    ids=["default agent", "a tier's fallback", "an agent's fallback"],
)
def test_nobody_falls_back_on_an_agent_that_acts(folder: Path, before: str, after: str) -> None:
    """The user has agreed to another one's work, and that may have been done already."""
    replace(folder, AGENTS, before, after)

    with pytest.raises(ConfigurationError, match="'model_trainer' has idempotent: false"):
        load_catalog(folder)
