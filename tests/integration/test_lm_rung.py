"""The LM rung through the real service: a dead or hanging LM costs at most the decision budget; the small local one decides for real."""

import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import body
from tests.integration.conftest import Start

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router
BUDGET_SECONDS = 2.0
SLACK_SECONDS = 6.0  # for a busy machine: what must not be is waiting for the LM, whose own timeout would be minutes
FORCED = {"preferences": {"rung": "lm"}}
TEXTS = [
    "did the copay card change anything for new starts",
    "where are we underperforming against potential",
    "which doctors respond best to samples",
    "how large must a pilot be to see two points",
    "what will TRx look like next quarter",
    "what does the confidence interval in that report mean",
    "is anything down right now",
    "do the inputs still look like what the model was trained on",
    "how should I split next year's budget over channels",
    "refit the conversion model on fresh data",
    "what does the churn model lean on most",
    "put version seven live",
]


@pytest.mark.parametrize("kind", ["closed", "hanging"])
def test_a_dead_lm_costs_at_most_the_budget_and_the_student_answers(
    kind: str, start_service: Start, closed_port: int, hanging_port: int
) -> None:
    """With the LM's port closed or hanging, a request that forces the LM is answered by the student in time, with the reason."""
    port = closed_port if kind == "closed" else hanging_port
    service = start_service(lm="openai/any", lm_api_base=f"http://127.0.0.1:{port}/v1", lm_api_key="none")

    for text in TEXTS:
        started = time.monotonic()
        response = httpx.post(f"{service.url}/route", json=body(text) | FORCED, timeout=30.0)
        seconds = time.monotonic() - started

        decision = response.json()
        assert response.status_code == 200
        assert decision["rung"] == "student"
        assert any(w["code"].startswith("lm_") for w in decision["warnings"])
        assert seconds < BUDGET_SECONDS + SLACK_SECONDS


def test_the_small_local_lm_decides_with_a_valid_label_every_time(start_service: Start, gguf: Path) -> None:
    """With POINTSMAN_LM=local and the real small model, `/route` shows the LM rung answering with a catalogue's intent and agent."""
    service = start_service(lm="local", lm_gguf=str(gguf), decision_budget_ms="60000")
    intents = {i["name"] for i in httpx.get(f"{service.url}/intents").json()}
    agents = {a["name"] for a in httpx.get(f"{service.url}/agents").json()}

    decisions = [httpx.post(f"{service.url}/route", json=body(text) | FORCED, timeout=90.0).json() for text in TEXTS]

    assert [d["rung"] for d in decisions] == ["lm"] * len(TEXTS), [d["warnings"] for d in decisions if d["rung"] != "lm"]
    assert {d["intent"] for d in decisions} <= intents
    assert {d["primary_agent"] for d in decisions if d["action"] == "dispatch"} <= agents
    assert all(d["question"] for d in decisions if d["action"] != "dispatch")  # what cannot be undone is asked about
