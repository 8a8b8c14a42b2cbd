"""Every built-in agent keeps the handoff contract, whatever it is sent."""

import json
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.agents.directory import AGENTS, run_agent
from service.agents.registry.store import open_registry
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffEnvelope, HandoffStatus
from service.metrics import Metrics
from tests.unit.agents.model_store import add_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning"),  # DoWhy 0.14, when it is compiled at its first import
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow 3.17 under SQLAlchemy 2.1
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),  # DoWhy 0.14 under pandas 3
]

SLOW = {"causal_impact", "model_selector", "model_trainer", "feature_analyzer"}
FAST = tuple(name for name in AGENTS if name not in SLOW and not AGENTS[name].has_effect)
MOVING = {"health_score", "observability_connector"}  # they measure processes, whose age and counts move
WITHOUT_BRANDS = {"observability_connector", "model_deployer", "experiment_designer"}  # they do, or plan, without data of a brand
QUESTIONS = {"model_deployer": "put e2i-fabhalta-conversion v1 into production"}
EVERY_AGENT = pytest.mark.parametrize("name", AGENTS)


def dispatch(
    name: str, entities: list[tuple[str, str]], context: dict[str, Any], *, max_latency_ms: int = 5000, required: float = 0.0
) -> AgentDispatch:
    """Return a dispatch for an agent."""
    return AgentDispatch.model_validate(
        {
            "dispatch_id": UUID(int=7),
            "query_id": UUID(int=8),
            "target_agent": name,
            "target_tier": AGENTS[name].tier,
            "payload": {
                "intent": "explanation",
                "entities": [{"type": kind, "value": value} for kind, value in entities],
                "context": context,
                "constraints": {"max_latency_ms": max_latency_ms, "required_confidence": required},
            },
            "routing": {"priority": 1, "timeout_ms": 5000, "retry_count": 0, "fallback_agent": None},
            "metadata": {"dispatched_at": "2026-06-17T00:00:00Z", "correlation_id": "test"},
        }
    )


@pytest.fixture(autouse=True, scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A service's metrics and a registry with one model, which some agents read."""
    page, _ = Metrics().expose("")

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # (the name that http.server calls)
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POINTSMAN_METRICS_URL", f"http://127.0.0.1:{server.server_port}/metrics")
        patch.setenv("POINTSMAN_MLFLOW_URI", f"sqlite:///{tmp_path_factory.mktemp('registry')}/mlflow.db")
        with warnings.catch_warnings(action="ignore"):  # MLflow's, as above
            registry = open_registry(create=True)
            assert registry is not None
            add_model(registry, "e2i-fabhalta-conversion", [0.7])
        yield
    server.shutdown()
    server.server_close()


@cache
def ordinary(name: str, required: float = 0.0) -> AgentHandoff:
    """Ask an agent an ordinary question, once."""
    return asked(name, required=required)


def asked(name: str, **limits: Any) -> AgentHandoff:
    """Ask an agent an ordinary question."""
    question = QUESTIONS.get(name, "Why did TRx change?")
    return run_agent(name, dispatch(name, [("brand", "Fabhalta"), ("kpi", "trx")], {"raw_query": question}, **limits))


@EVERY_AGENT
def test_a_handoff_survives_the_wire(name: str) -> None:
    """What is sent as JSON is read back as the same handoff, complete."""
    handoff = ordinary(name)
    received = HandoffEnvelope.model_validate_json(HandoffEnvelope(handoff=handoff).model_dump_json()).handoff

    assert received == handoff
    assert (received.agent_id, received.agent_tier, received.dispatch_id) == (name, AGENTS[name].tier, UUID(int=7))
    assert received.execution.status is HandoffStatus.SUCCESS
    assert received.execution.started_at <= received.execution.completed_at
    assert received.metadata.model_used
    assert received.errors.error_type is None


@EVERY_AGENT
def test_evidence_and_caveats_are_sentences_with_numbers(name: str) -> None:
    """A reader can check what is said: each piece of evidence ends as a sentence does, and most hold a number."""
    result = ordinary(name).result

    assert result.evidence
    assert all(sentence.strip().endswith((".", "?")) and len(sentence) > 20 for sentence in (*result.evidence, *result.caveats))
    assert sum(any(letter.isdigit() for letter in sentence) for sentence in result.evidence) >= len(result.evidence) / 2
    assert not any("nan" in sentence.lower().split() or "-0.0 " in sentence for sentence in result.evidence)


@EVERY_AGENT
def test_charts_are_vega_lite_with_their_data_inside(name: str) -> None:
    """Each names the schema of version 5, has a mark, fewer than 200 rows, and no encoding of a field that its rows lack."""
    charts = ordinary(name).artifacts.visualizations

    assert charts or name in {"scope_definer", "model_deployer"}  # there is nothing to draw of a scope and an alias
    for chart in charts:
        spec: Any = chart
        rows = spec["data"]["values"]
        assert spec["$schema"] == "https://vega.github.io/schema/vega-lite/v5.json"
        assert 0 < len(rows) < 200
        assert {field for field in _fields(spec)} <= {key for row in rows for key in row}
        assert all("mark" in layer and "encoding" in layer for layer in spec.get("layer", [spec]))


@EVERY_AGENT
def test_tables_have_a_cell_for_every_column(name: str) -> None:
    """Rows are as wide as the header."""
    tables: Any = ordinary(name).artifacts.tables

    assert tables
    assert all(len(row) == len(one["columns"]) for one in tables for row in one["rows"])


@EVERY_AGENT
def test_an_answer_below_the_required_confidence_is_partial(name: str) -> None:
    """And it says by how much; none is sure beyond doubt."""
    handoff = ordinary(name, required=1.0)

    if name == "model_deployer":  # an alias points where it points
        assert handoff.execution.status is HandoffStatus.SUCCESS
        return
    assert handoff.execution.status is HandoffStatus.PARTIAL
    assert 0.0 < handoff.result.confidence < 1.0 or name == "observability_connector"  # which has seen no traffic here
    assert "below the 1.00 that was required" in handoff.result.caveats[-1]


@EVERY_AGENT
def test_the_same_dispatch_gets_the_same_answer(name: str) -> None:
    """But for the clock, nothing depends on chance."""
    first, second = ordinary(name), asked(name)

    if name in MOVING or AGENTS[name].has_effect:  # the second time it is done already
        assert first.result.primary_output.keys() == second.result.primary_output.keys()
    else:
        assert (first.result, first.artifacts) == (second.result, second.artifacts)


@EVERY_AGENT
def test_an_unknown_brand_is_an_honest_failure(name: str) -> None:
    """Failed, not to be tried again, with what is there instead."""
    handoff = run_agent(name, dispatch(name, [("brand", "Humira")], {"raw_query": "Why?"}))

    if name in WITHOUT_BRANDS:
        assert handoff.errors.error_type != "internal_error"
        return
    assert handoff.execution.status is HandoffStatus.FAILED
    assert (handoff.errors.error_type, handoff.errors.recoverable) == ("unknown_entity", False)
    assert "'Humira'" in (handoff.errors.error_message or "")
    assert "Kisqali" in (handoff.errors.error_message or "")
    assert handoff.result.confidence == 0.0


HOSTILE_CONTEXTS = [
    {},
    {"raw_query": None},
    {"raw_query": ["a", {"b": 1}], "treatment": {"x": 1}, "outcome": 3, "agent_results": {"result": {"ate": "NaN"}}},
    {"raw_query": "TRx " * 25_000},
    {"raw_query": "\x00\u202e\u0130\ufb01 \U0001f48a ＴＲｘ ' OR 1=1 -- <script>", "treatment": "\u0000", "term": "\u200d"},
    {"agent_results": [{"agent_id": "x" * 10_000, "confidence": 1e308, "result": {"ate": 10**400, "k" * 5000: -1e300}}]},
]


@EVERY_AGENT
@pytest.mark.parametrize("context", HOSTILE_CONTEXTS, ids=["empty", "null", "wrong-types", "enormous", "odd-unicode", "huge-numbers"])
def test_a_hostile_context_gets_a_handoff(name: str, context: dict[str, Any]) -> None:
    """Never an exception, never an internal error, and never an answer that carries the flood back."""
    handoff = run_agent(name, dispatch(name, [], context, max_latency_ms=0))

    assert handoff.errors.error_type != "internal_error"
    assert len(HandoffEnvelope(handoff=handoff).model_dump_json()) < 60_000


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(FAST),
    entities=st.lists(
        st.tuples(
            st.sampled_from(["brand", "region", "kpi", "time_period", "hcp_id", "patient_id"]),
            st.one_of(
                st.sampled_from(["kisqali", "South", "TRx", "last 5 weeks", "next year", "HCP-2400", "Q1", "0"]),
                st.text(min_size=1, max_size=30),
            ),
        ),
        max_size=4,
    ),
    question=st.text(max_size=80),
)
def test_no_entities_make_an_agent_fail_unexpectedly(name: str, entities: list[tuple[str, str]], question: str) -> None:
    """Any entities and any text end in an answer or in an honest failure."""
    handoff = run_agent(name, dispatch(name, entities, {"raw_query": question}))

    assert handoff.errors.error_type != "internal_error"
    json.loads(HandoffEnvelope(handoff=handoff).model_dump_json())


def _fields(spec: Any) -> set[str]:
    if isinstance(spec, dict):
        inner = {field for key, value in spec.items() if key != "data" for field in _fields(value)}
        return inner | ({spec["field"]} if isinstance(spec.get("field"), str) else set())
    return {field for value in spec for field in _fields(value)} if isinstance(spec, list) else set()
