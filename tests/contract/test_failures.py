"""Failures behind a request: store, router, agents, synthesis, and what nobody foresaw."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from service.catalog.model import Agent
from service.contracts.dispatch import AgentDispatch
from service.contracts.handoff import AgentHandoff, HandoffStatus
from service.contracts.lm import LMFailure, SynthesisQuestion
from service.contracts.receipt import Receipt
from service.errors import ErrorCode, StoreUnavailable
from service.ports import AgentFailure
from service.programs import Router
from service.routing.encoder import Encoding
from service.routing.student import Reading, Student
from tests.conftest import World, body
from tests.contract.asking import CAUSAL, UNKNOWN, answered, assert_problem
from tests.contract.test_operations import samples
from tests.fakes import MemoryStore, ScriptedAgents, ScriptedPredictors, down, take_away

NOBODYS = "1257f2ab-53f6-4e0d-aa52-649c8262c709"  # a decision that nobody made

# Failures behind a request


class CommitFails(MemoryStore):
    """A store that reads but does not write."""

    async def commit(self, receipt: Receipt) -> Receipt:
        """Fail."""
        raise StoreUnavailable("The disk is full.")


@pytest.mark.parametrize("text", [CAUSAL, "hello"], ids=["dispatched", "social"])
async def test_without_a_store_nothing_is_dispatched(world: World, text: str) -> None:
    """503 that may be retried; the agents were not asked and nothing is kept."""
    world.store.available = False
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body(text))

    assert_problem(response, 503, "store_unavailable", retryable=True)
    assert (world.agents.sent, world.store.receipts) == ([], {})


async def test_an_answer_that_cannot_be_kept_is_not_given(world: World) -> None:
    """A commit that fails is 503: neither the answer nor a half of the receipt is seen, and no decision is counted."""
    world.store = CommitFails()
    question = body(CAUSAL)
    async with world.client() as client:
        response = await client.post("/orchestrate", json=question)
        counted = {name for name, _ in await samples(client)}

        problem = assert_problem(response, 503, "store_unavailable", retryable=True)
        assert "finds 42" not in str(problem)
        assert world.store.receipts == {}
        said = {"query_id": question["parsed_query"]["query_id"], "user_satisfaction": 5}
        assert_problem(await client.post("/feedback", json=said), 404, "not_found")
    assert "orchestrator_decisions_total" not in counted


@pytest.mark.parametrize(
    ("method", "path", "payload"),
    [("GET", f"/decisions/{UNKNOWN}", None), ("POST", "/feedback", {"decision_id": UNKNOWN, "user_satisfaction": 4})],
    ids=["decision", "feedback"],
)
async def test_what_reads_the_store_says_so_when_it_is_away(world: World, method: str, path: str, payload: dict[str, Any] | None) -> None:
    """503 that may be retried, not 404: that something is not there cannot be said now."""
    world.store.available = False
    async with world.client() as client:
        assert_problem(await client.request(method, path, json=payload), 503, "store_unavailable", retryable=True)


class BrokenStudent(Student):
    """A student that cannot read."""

    def __init__(self, whole: Student, error: Exception) -> None:
        super().__init__(whole.encoder, whole.lexicon, whole.weights, whole.examples)
        self.error = error

    def read_all(self, encodings: Sequence[Encoding]) -> list[Reading]:
        """Fail."""
        raise self.error


ERRORS = [
    RuntimeError("secret words"),
    KeyError("x"),
    ValueError("x"),
    ZeroDivisionError(),
    RecursionError(),
    MemoryError(),
    TimeoutError(),
]


@pytest.mark.parametrize("path", ["/orchestrate", "/route"])
@pytest.mark.parametrize("error", ERRORS, ids=[type(e).__name__ for e in ERRORS])
async def test_when_routing_breaks_the_explainer_answers(world: World, error: Exception, path: str) -> None:
    """The contract's ROUTING_FAILED: the default agent, a warning, no trace of the error, and a receipt as for any other request."""
    assert world.router is not None
    world.router = replace(world.router, student=BrokenStudent(world.router.student, error))
    async with world.client() as client:
        response = await client.post(path, json=body())

    answer = response.json()
    assert response.status_code == 200
    assert [w["code"] for w in answer["warnings"]] == ["routing_failed"]
    assert (answer["intent"], answer["rung"], answer["router_version"]) == ("explanation", "safe_default", "test")
    assert "secret words" not in response.text
    if path == "/orchestrate":
        assert (answer["status"], answer["agents_dispatched"]) == ("success", ["explainer"])
        assert len(world.store.receipts) == 1
    else:
        assert answer["primary_agent"] == "explainer"


async def test_the_log_of_a_broken_rung_holds_no_user_text(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the question nor the ids of the user are in the traceback's frames."""
    assert world.router is not None
    world.router = replace(world.router, student=BrokenStudent(world.router.student, RuntimeError("broken")))
    async with world.client() as client:
        await client.post("/orchestrate", json=body("Joe Bloggs has a rare marker zq7x"))

    logged = capsys.readouterr().err
    assert "routing_failed" in logged
    assert "test_failures.py" in logged
    assert "zq7x" not in logged
    assert "s-1" not in logged


async def test_a_router_that_knows_other_intents_is_no_500(world: World, router: Router) -> None:
    """A student whose label the catalogue lacks breaks routing, not the service."""

    class Foreign(BrokenStudent):
        def read_all(self, encodings: Sequence[Encoding]) -> list[Reading]:
            return [Reading({"astrology": 0.99}, 0.0, encoding.vector) for encoding in encodings]

    world.router = replace(router, student=Foreign(router.student, RuntimeError()))
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body())

    assert response.status_code == 200
    assert "routing_failed" in [w["code"] for w in response.json()["warnings"]]


class BrokenComposer(ScriptedPredictors):
    """An LM rung with a bug: wording raises, which the port forbids."""

    async def compose(self, question: SynthesisQuestion, *, timeout: float) -> str | LMFailure:
        """Fail."""
        raise RuntimeError(f"secret words about {[f.summary for f in question.findings]}")


async def test_when_merging_breaks_the_results_are_returned_as_they_are(world: World) -> None:
    """The contract's SYNTHESIS_FAILED: partial, with a caveat, and what the agents brought is in the results."""
    world.predictors = BrokenComposer(LMFailure(reason="error", detail="x"))
    async with world.client() as client:
        answer = await answered(client)

    assert answer["status"] == "partial"
    assert [w["code"] for w in answer["warnings"]] == ["synthesis_failed"]
    assert answer["response_text"] == answer["warnings"][0]["message"]
    assert answer["response_confidence"] == 0.0
    assert answer["agents_dispatched"] == ["causal_impact"]
    assert answer["agent_results"][0]["result"]["primary_output"]["summary"] == "causal_impact finds 42."
    assert "secret words" not in str(answer)


AGENT_ENDS: dict[str, tuple[AgentFailure | HandoffStatus, str, list[str]]] = {
    "success": (HandoffStatus.SUCCESS, "success", []),
    "partial": (HandoffStatus.PARTIAL, "partial", []),
    "blocked": (HandoffStatus.BLOCKED, "failed", ["qc_gate_blocked"]),
    "failed": (HandoffStatus.FAILED, "partial", ["agent_error", "fallback_used"]),
    "down": (down(), "partial", ["agent_unavailable", "fallback_used"]),
    "late": (down(ErrorCode.AGENT_TIMEOUT), "partial", ["agent_timeout", "fallback_used"]),
}


@pytest.mark.parametrize(("end", "status", "codes"), AGENT_ENDS.values(), ids=AGENT_ENDS.keys())
async def test_however_an_agent_ends_there_is_an_answer(
    world: World, end: AgentFailure | HandoffStatus, status: str, codes: list[str]
) -> None:
    """200 with a status and a warning for each thing that went wrong; the explainer stands in, but not for a blocked gate."""
    world.agents.script = {"causal_impact": [end]}
    async with world.client() as client:
        answer = await answered(client)

    assert answer["status"] == status
    assert [w["code"] for w in answer["warnings"]] == codes
    assert answer["agents_dispatched"] == ["causal_impact", *(["explainer"] if "fallback_used" in codes else [])]


async def test_when_no_agent_is_left_a_fixed_text_stands_in(world: World) -> None:
    """The end of every chain of tiers 2 to 5: failed, with the template answer, still 200."""
    take_away(world.health, *(world.catalog.agent[name] for name in ("causal_impact", "explainer")))
    async with world.client() as client:
        answer = await answered(client)

    assert (answer["status"], answer["agents_dispatched"], answer["response_confidence"]) == ("failed", [], 0.0)
    assert answer["response_text"].startswith("No agent could answer this request")
    assert [w["code"] for w in answer["warnings"]] == ["agent_unavailable", "agent_unavailable", "template_answer"]


class BuggyAgents(ScriptedAgents):
    """An agent client with a bug."""

    async def send(self, agent: Agent, url: str, dispatch: AgentDispatch, *, timeout: float) -> AgentHandoff | AgentFailure:
        """Fail."""
        raise RuntimeError("secret words")


async def test_a_bug_on_the_way_to_an_agent_is_that_agents_failure(world: World) -> None:
    """The request is answered and stored, the log says why, and the answer quotes nothing of the error."""
    world.agents = BuggyAgents()
    async with world.client() as client:
        answer = await answered(client)

    assert (answer["status"], answer["agents_dispatched"]) == ("failed", ["causal_impact", "explainer"])
    assert [w["code"] for w in answer["warnings"]] == ["agent_unavailable", "agent_unavailable", "template_answer"]
    assert "secret words" not in json.dumps(answer)
    assert len(world.store.receipts) == 1


class BuggyStore(MemoryStore):
    """A store with a bug."""

    async def commit(self, receipt: Receipt) -> Receipt:
        """Fail."""
        raise RuntimeError("secret words")


async def test_what_nobody_foresaw_is_a_problem_without_a_traceback(world: World) -> None:
    """500 with the id to find it by in the log, and nothing of the error; nothing is kept."""
    world.store = BuggyStore()
    async with world.client() as client:
        response = await client.post("/orchestrate", json=body(CAUSAL), headers={"X-Request-ID": "trace-1"})

    problem = assert_problem(response, 500, "internal_error")
    assert problem["request_id"] == "trace-1"
    assert not any(words in response.text for words in ("secret words", "Traceback", "RuntimeError", "rep visits"))
    assert world.store.receipts == {}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/nothing", 404, "not_found"),
        ("POST", "/orchestrate/", 404, "not_found"),
        ("GET", "/decisions", 404, "not_found"),
        ("GET", f"/decisions/{NOBODYS}/", 404, "not_found"),
        ("GET", "/orchestrate", 405, "method_not_allowed"),
        ("PUT", "/orchestrate", 405, "method_not_allowed"),
        ("DELETE", f"/decisions/{NOBODYS}", 405, "method_not_allowed"),
        ("POST", "/agents", 405, "method_not_allowed"),
        ("OPTIONS", "/route", 405, "method_not_allowed"),
    ],
)
async def test_what_there_is_not_is_a_problem_too(world: World, method: str, path: str, status: int, code: str) -> None:
    """Unknown paths are 404 and other methods 405 with `Allow`, whatever body they carry; no redirect, no echo of the path in the text."""
    async with world.client() as client:
        response = await client.request(method, path, content=b"x" if method == "POST" else None)

    problem = assert_problem(response, status, code)
    assert path.strip("/") == "" or path not in problem["detail"]
    assert ("allow" in response.headers) is (status == 405)
