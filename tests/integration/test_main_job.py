"""The main job on real programs: a question becomes an answer, whatever the intent, and what was answered is in the database."""

import asyncio
import contextlib
import http.client
import json
import random
import select
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.catalog.loader import FILES, PACKAGED
from tests.conftest import ROOT, body
from tests.integration.conftest import SPECIFIED, Program, Start, free_port, gather_answers

pytestmark = pytest.mark.timeout(600)  # the first test of a run fits a router


@pytest.fixture(scope="module")
def golden() -> dict[str, list[str]]:
    """Golden texts by label."""
    rows = [json.loads(line) for line in (ROOT / "datasets/golden/test.jsonl").read_text().splitlines()]
    return {label: [r["text"] for r in rows if r["label"] == label] for label in SPECIFIED}


def test_each_intents_golden_queries_reach_the_specified_agent(service: Program, golden: dict[str, list[str]]) -> None:
    """Of three golden queries at least two go to the primary agent of the routing table, whatever it then has to say."""
    for intent, primary in SPECIFIED.items():
        answers = [httpx.post(f"{service.url}/orchestrate", json=body(text), timeout=90.0).json() for text in golden[intent][:3]]
        reached = [a for a in answers if a["intent"] == intent and a["agents_dispatched"][:1] == [primary]]
        assert len(reached) >= 2, (intent, [(a["intent"], a["action"]) for a in answers])


CONVERSION = "Train a model that predicts conversion for Kisqali in the Midwest, without samples."


def test_a_model_is_trained_step_by_step_and_taken_into_service_after_a_yes(service: Program, workplace: Path) -> None:
    """The pipeline's four agents in order, its inputs as declared, a version in MLflow; then the deployer, asked first, moves its alias."""
    wish = {"role": "user", "content": "should we put the model e2i-kisqali-conversion-midwest into production?"}

    def ask(text: str, *said: dict[str, str]) -> dict[str, Any]:
        asked = {**body(text), "conversation_history": list(said)}
        return dict(httpx.post(f"{service.url}/orchestrate", json=asked, timeout=180.0).json())

    trained = ask(CONVERSION)
    question = ask(wish["content"])
    deployed = ask("yes", wish, {"role": "assistant", "content": question["response_text"]})

    assert (trained["status"], trained["flow"]) in {("success", "pipeline"), ("partial", "pipeline")}, trained["response_text"]
    assert trained["agents_dispatched"] == ["scope_definer", "data_preparer", "model_selector", "model_trainer"]
    scope = trained["agent_results"][0]["result"]["primary_output"]["scope"]
    assert "samples" not in json.dumps(scope["inputs"])
    model = trained["agent_results"][3]["result"]["models"][0]
    assert model["mlflow_uri"].startswith("models:/")
    assert (question["action"], question["agents_dispatched"]) == ("clarify", [])
    assert deployed["agents_dispatched"] == ["model_deployer"], deployed["response_text"]
    assert deployed["status"] == "success", deployed["response_text"]


def test_a_pipeline_stops_at_its_gate_with_the_report(service: Program) -> None:
    """Bad data are not trained on: status failed, `qc_gate_blocked`, and the report in the result."""
    strict = body(CONVERSION, context={"qc_minimum": 1.0})

    answer = httpx.post(f"{service.url}/orchestrate", json=strict, timeout=120.0).json()

    assert (answer["status"], answer["agents_dispatched"]) == ("failed", ["scope_definer", "data_preparer"])
    assert "qc_gate_blocked" in [w["code"] for w in answer["warnings"]]
    report = answer["agent_results"][1]["result"]["primary_output"]["qc_report"]
    assert (report["passed"], report["share_met"] < 1.0) == (False, True)


def test_several_wishes_are_answered_together(service: Program) -> None:
    """Two perspectives at once, each by its own agent, in the order of the text."""
    text = "where are we leaving Kisqali scripts on the table, and what will Kisqali TRx look like next quarter?"

    answer = httpx.post(f"{service.url}/orchestrate", json=body(text), timeout=90.0).json()

    assert answer["flow"] == "parallel"
    assert answer["agents_dispatched"][:2] == ["gap_analyzer", "prediction_synthesizer"]
    assert [r["status"] for r in answer["agent_results"][:2]] == ["success", "success"]


UNDERSTOOD = {
    "two wishes in the order of the text": ("check for drift and then retrain the churn model", "dispatch", ["drift_check", "ml_training"]),
    "two wishes against it": ("before you retrain the churn model, check its inputs for drift", "dispatch", ["drift_check", "ml_training"]),
    "one is not wanted": ("don't retrain anything, just explain the churn score", "dispatch", ["explanation"]),
    "nothing is wanted": ("please don't retrain the model", "clarify", []),
    "a list is no second wish": ("what drove NRx and TRx up in the Northeast and the Midwest", "dispatch", ["causal_impact"]),
}


FOREIGN = {
    "de": "Warum sind die Verschreibungen im März gesunken?",
    "fr": "Pourquoi les prescriptions ont-elles baissé ?",
    "zh": "为什么处方量下降了？",
    "ar": "لماذا انخفضت الوصفات؟",
}


def test_a_text_is_understood_as_a_whole(service: Program) -> None:
    """Several wishes in the order of carrying out, without what is not wanted; a language that is not read is refused by name."""

    def decide(text: str) -> dict[str, Any]:
        return dict(httpx.post(f"{service.url}/route", json=body(text), timeout=60.0).json())

    for text, action, intents in UNDERSTOOD.values():
        decision = decide(text)
        assert (text, decision["action"], decision["intents"]) == (text, action, intents)
    for code, text in FOREIGN.items():
        decision = decide(text)
        assert (text, decision["action"]) == (text, "refuse")
        assert [w["code"] for w in decision["warnings"]] == ["language_not_read"]
        assert f"({code})" in decision["warnings"][0]["message"]


def test_a_causal_question_is_answered_with_an_interval_that_covers_the_documented_truth(service: Program) -> None:
    """The answer of the real agent through the real service holds the adjusted effect, and the truth (docs/agents.md) lies within."""
    answer = httpx.post(f"{service.url}/orchestrate", json=body("Did the rep visits really lift Kisqali TRx?"), timeout=60.0).json()

    output = answer["agent_results"][0]["result"]["primary_output"]
    low, high = output["confidence_interval"]

    assert answer["status"] == "success"
    assert low < output["ate"] < high
    assert 0.60 < low < 1.20  # between the effect in community practice and the one in academic centres
    assert output["naive_difference"] > high
    assert f"{output['ate']:.2f}" in answer["response_text"]
    receipt = httpx.get(f"{service.url}/decisions/{answer['decision_id']}").json()
    assert receipt["output"] == answer
    assert receipt["signal"]["agents_succeeded"] == 1


def test_a_follow_up_can_be_tried_from_the_terminal(workplace: Path) -> None:
    """`pointsman route --history` reads it after what was said before; alone it says too little to act on."""
    follow_up = [sys.executable, "-m", "service.cli", "route", "and in the Midwest?", "--json"]
    history = ["--history", "user: Did the rep visits lift Kisqali TRx?", "--history", "assistant: Yes, by 0.8."]

    alone, after = (json.loads(subprocess.check_output(command, cwd=workplace)) for command in (follow_up, follow_up + history))

    assert (after["action"], after["intent"]) == ("dispatch", "causal_impact")
    assert alone["action"] != "dispatch"


def test_a_connection_may_rest_for_longer_than_five_seconds(service: Program) -> None:
    """Proxies keep connections for a minute; a request on one that the service has just closed would be lost on its way."""
    connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]), timeout=30.0)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        first = connection.getresponse()
        first.read()  # whole: its head and body may come one after the other
        kept = connection.sock

        came, _, _ = select.select([kept], [], [], 6.0)
        assert came == []  # nothing more comes, not even the end
        connection.request("GET", "/healthz")
        second = connection.getresponse()
        second.read()

        assert (first.status, second.status) == (200, 200)
        assert connection.sock is kept


def test_agents_on_another_port_are_found_there(start_service: Start, agents: Program) -> None:
    """POINTSMAN_AGENTS_PORT alone is enough: `serve` asks where `agents` listens."""
    service = start_service(agents_base_url="", agents_port=agents.url.rpartition(":")[2])

    answer = httpx.post(f"{service.url}/orchestrate", json=body("Did the rep visits really lift Kisqali TRx?"), timeout=60.0).json()

    assert (answer["status"], answer["agents_dispatched"]) == ("success", ["causal_impact"])


def test_every_delivered_response_survives_a_sigkill(start_service: Start, workplace: Path, tmp_path: Path) -> None:
    """200 concurrent requests, SIGKILL in their midst: each response that was delivered has its decision and signal in the database."""
    delivered: set[str] = set()
    database = tmp_path / "killed.db"
    for attempt in range(3):
        service = start_service(database_url=f"sqlite:///{database}")
        texts = ["hello", "what is the weather", "is everything up and running?", "Which features drifted?", "where are the Kisqali gaps"]
        bodies = [body(texts[i % len(texts)]) for i in range(200)]
        killer = threading.Thread(target=_kill_after, args=(service, random.Random(attempt).uniform(0.5, 2.5)))
        killer.start()
        answers = asyncio.run(gather_answers(f"{service.url}/orchestrate", bodies))
        killer.join()
        delivered |= {a.json()["decision_id"] for a in answers if isinstance(a, httpx.Response) and a.status_code == 200}

    with sqlite3.connect(database) as connection:
        decisions = {row[0] for row in connection.execute("SELECT decision_id FROM decision")}
        signals = {row[0] for row in connection.execute("SELECT decision_id FROM signal")}
    connection.close()

    assert delivered, "the service was killed before it delivered anything: the test proves nothing"
    assert delivered <= decisions
    assert delivered <= signals


def _kill_after(service: Program, seconds: float) -> None:
    time.sleep(seconds)
    service.kill()


def test_an_agent_that_speaks_a2a_answers_like_any_other(service: Program, start_service: Start, agents: Program, tmp_path: Path) -> None:
    """The explainer over A2A, through the whole service: same evidence, same receipt."""
    for file in FILES:
        (tmp_path / file).write_text((PACKAGED / file).read_text())
    described = (tmp_path / "agents.yaml").read_text()
    own = "urls: [http://127.0.0.1:8101/agents/explainer]\n    builtin: true"
    assert own in described
    (tmp_path / "agents.yaml").write_text(described.replace(own, f"urls: [{agents.url}/a2a/explainer]\n    protocol: a2a"))
    spoken = start_service(catalog=str(tmp_path))
    question = "@explainer what does a confidence interval mean?"

    answers = [httpx.post(f"{one.url}/orchestrate", json=body(question), timeout=90.0).json() for one in (service, spoken)]

    assert [a["status"] for a in answers] == ["success", "success"], answers[1]["response_text"]
    assert answers[0]["response_text"] == answers[1]["response_text"]
    assert answers[1]["agents_dispatched"] == ["explainer"]


def test_users_of_the_drill_ask_and_rate(service: Program, agents: Program, workplace: Path) -> None:
    """What cannot be asked is told in a sentence, with exit code 2."""
    script = [sys.executable, str(ROOT / "scripts" / "drill_users.py")]

    def users(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*script, *arguments], capture_output=True, text=True, timeout=100, check=False)

    done = users("--url", service.url, "--count", "5")
    refused = [
        users("--url", service.url, "--count", "0"),
        users("--url", service.url, "--count", "3000", "--round", "2"),
        users("--url", agents.url, "--count", "1"),
        users("--url", f"http://127.0.0.1:{free_port()}", "--count", "1"),
        users("--url", "http://[::1", "--count", "1"),
    ]

    rated = sqlite3.connect(workplace / "var/pointsman.db").execute("select count(user_satisfaction) from signal where user_id = 'drill'")
    assert (done.returncode, done.stdout.startswith("5 asked, ")) == (0, True), done.stderr
    assert rated.fetchone() == (5,)
    assert [(one.returncode, "Traceback" in one.stderr) for one in refused] == [(2, False)] * 5
