"""Every golden query goes through the real service to its real agent, and the numbers that come back are computed anew, another way.

The caller names the intent, so that routing (which has tests of its own) is not what is measured here.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import httpx
import pytest

from service.agents.sample_data import Snapshot, load_snapshot
from service.catalog.loader import load_catalog
from tests.conftest import ROOT, body
from tests.integration.conftest import SPECIFIED, Program

pytestmark = pytest.mark.timeout(900)
AT_ONCE = 3
PRIMARY = {intent: agent for intent, agent in SPECIFIED.items() if load_catalog().is_reading(intent)}
LEAST_ANSWERED = 0.5  # of an intent's golden queries, by its own agent: many name brands and things that the sample data lack
ROWS = [json.loads(line) for line in (ROOT / "datasets/golden/test.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def data() -> Snapshot:
    """The sample data of today, as the agents have them."""
    return load_snapshot()


def golden(intent: str) -> list[str]:
    """Return the golden queries of an intent."""
    return [row["text"] for row in ROWS if row["label"] == intent]


def ask(service: Program, intent: str, text: str) -> list[dict[str, Any]]:
    """Send a query and return what each agent did, as the receipt has it."""
    answer = httpx.post(f"{service.url}/orchestrate", json=body(text, intent=intent, confidence=0.95), timeout=120.0)
    assert answer.status_code == 200, (text, answer.text)
    receipt = httpx.get(f"{service.url}/decisions/{answer.json()['decision_id']}", timeout=30.0).json()
    return list(receipt["stages"]["dispatch"])


def handoff_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run's handoff; a refusal, of which the receipt has type and text, in the same shape."""
    if run["handoff"] is not None:
        return dict(run["handoff"])
    failure = run["failure"]
    assert failure["code"] == "agent_error", failure
    message = failure["detail"].partition(" failed: ")[2]
    return {
        "execution": {"status": "failed"},
        "result": {"primary_output": {}, "confidence": 0.0, "evidence": [], "caveats": []},
        "errors": {"error_type": failure["error_type"], "error_message": message, "recoverable": False},
    }


@pytest.mark.parametrize(("intent", "agent"), PRIMARY.items(), ids=PRIMARY)
def test_the_agent_answers_its_golden_queries_with_the_right_numbers(service: Program, data: Snapshot, intent: str, agent: str) -> None:
    """By the intent's own agent; what it refuses is really not in the data."""
    check = import_module(f"tests.golden_checks.{agent}").check
    texts = golden(intent)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        runs = list(threads.map(lambda text: ask(service, intent, text), texts))

    answered = 0
    for text, (first, *_) in zip(texts, runs, strict=True):
        assert first["agent"] == agent
        check(text, handoff_of(first), data)
        answered += first["handoff"] is not None
    assert answered >= LEAST_ANSWERED * len(texts)
