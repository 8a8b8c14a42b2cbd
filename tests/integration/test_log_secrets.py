"""Secrets and user text planted wherever they can come from are in no line that a real process logs at INFO; each request has one line."""

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from tests.conftest import body
from tests.integration.conftest import Program, Start, free_port
from tests.integration.test_lm_faults import Handler, answering, completion, served
from tests.integration.test_lm_faults import http as answered
from tests.programs import run_program, without_settings

pytestmark = pytest.mark.timeout(600)
MARK = "zanzibar"  # in every secret and every text, and in nothing else
KEY, LM_KEY = f"{MARK}-key", f"{MARK}-lm-key"
HEADERS = {"Authorization": f"Bearer {KEY}", "User-Agent": f"{MARK}/1.0", "Cookie": f"session={MARK}", "Referer": f"http://{MARK}.example/"}
FORCED = {"preferences": {"rung": "lm"}}
FAULTS = ("error_500", "html_200", "invalid_json", "unknown_status", "failed", "wrong_agent_id")
LM_ANSWERS = {
    "refuses": answering(answered(json.dumps({"error": {"message": f"bad key {MARK}"}}).encode(), "401 Unauthorized")),
    "breaks": answering(answered(f"<html>{MARK}</html>".encode(), "500 Internal Server Error")),
    "answers nonsense": answering(completion(f"{MARK} is no JSON")),
    "answers what is not on the list": answering(completion(json.dumps({"intent": MARK, "sub_intent": MARK, "confidence": 0.9}))),
}


def asking(text: str, **more: Any) -> dict[str, Any]:
    """Return a body with planted text in every field that takes some."""
    asked = body(f"{text} {MARK}") | {"user_id": f"u-{MARK}", "session_id": f"s-{MARK}"} | more
    asked["conversation_history"] = [{"role": "user", "content": f"I am {MARK}"}, {"role": "assistant", "content": f"Hello {MARK}"}]
    return asked


async def ask_everything(url: str) -> list[httpx.Response]:
    """Send what is right and what is wrong, with planted text in bodies, paths, queries and headers."""
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=60.0) as client:
        twice = asking("hello")
        posted = [
            asking("which regions lag?"),
            asking("@gap_analyzer where is the gap?"),
            asking("did it lift TRx?") | FORCED,
            twice,
            twice,
        ]
        answers = [await client.post("/orchestrate", json=one) for one in posted]
        answers.append(await client.post("/orchestrate", json=twice | {"user_id": MARK}))  # the same id, another body
        answers.append(await client.post("/orchestrate/stream", json=asking("@gap_analyzer where is the gap?")))
        answers.append(await client.post("/route", json=asking("which regions lag?") | FORCED))
        answers.append(await client.post("/route", json=asking("hello", **{MARK: MARK})))
        answers.append(await client.post("/route", content=f'{{"{MARK}": {MARK}'.encode(), headers={"Content-Type": "application/json"}))
        answers.append(await client.post("/orchestrate", content=MARK.encode(), headers={"Content-Type": "text/plain"}))
        answers.append(await client.post("/feedback", json={"query_id": str(uuid4()), "corrected_agent": MARK}))
        answers.append(await client.post("/feedback", json={"decision_id": answers[0].json()["decision_id"], "user_satisfaction": 5}))
        answers.append(await client.get(f"/decisions/{MARK}"))
        answers.append(await client.get(f"/{MARK}?token={MARK}"))
        answers.append(await client.get(f"/agents?token={MARK}", headers={"Authorization": f"Bearer wrong-{MARK}"}))
    return answers


def lines(service: Program) -> list[dict[str, Any]]:
    """Return what was logged; every line is JSON."""
    return [json.loads(line) for line in service.log.splitlines()]


@pytest.mark.parametrize("lm", LM_ANSWERS.values(), ids=LM_ANSWERS)
async def test_no_line_at_info_holds_a_secret_or_what_a_user_wrote(start_service: Start, tmp_path: Path, lm: Handler) -> None:
    """Whatever agents and the LM answer; and every request has exactly one line, which tells its id, and how it was decided."""
    faults = [PlannedFault.model_validate({"agent": "*", "fault": fault, "times": 1}) for fault in FAULTS]
    outputs = {"gap_analyzer": {"summary": f"{MARK} found {MARK}", "finding": 1}}
    async with served(lm) as address, FaultServer(FaultPlan(faults=tuple(faults)), outputs=outputs) as agents:
        service = await asyncio.to_thread(
            start_service,
            api_keys=f"tenant:{hashlib.sha256(KEY.encode()).hexdigest()}:tier:*",
            agents_base_url=f"http://127.0.0.1:{agents.port}",
            database_url=f"sqlite:///{tmp_path}/log.db",
            lm="openai/any",
            lm_api_base=address,
            lm_api_key=LM_KEY,
            decision_budget_ms="20000",
        )
        answers = await ask_everything(service.url)
        await asyncio.to_thread(service.stop)

    assert MARK not in service.log, next(line for line in service.log.splitlines() if MARK in line)
    told = [line for line in lines(service) if line["event"] in {"request", "response"}]
    assert Counter(line["request_id"] for line in told) == Counter(a.headers["x-request-id"] for a in answers)
    by_id = {line["request_id"]: line for line in told}
    for answer in answers:
        line = by_id[answer.headers["x-request-id"]]
        if line["event"] == "request":
            assert {"decision_id", "query_id", "tenant", "rung", "router_version", "timings_ms", "total_latency_ms"} <= line.keys()
        else:
            assert line["status"] == answer.status_code
            assert answer.status_code < 400 or line["code"] == answer.json()["code"]
    assert {a.status_code for a in answers} >= {200, 400, 401, 404, 409, 415}


async def test_no_error_of_the_database_is_quoted(start_service: Start, tmp_path: Path) -> None:
    """A database that refuses a row and quotes it: the caller gets a problem, and the log neither row nor text."""
    database = tmp_path / "log.db"
    service = await asyncio.to_thread(start_service, database_url=f"sqlite:///{database}")
    with sqlite3.connect(database) as connection:
        quoting = f"CREATE TRIGGER refuse BEFORE INSERT ON decision BEGIN SELECT RAISE(ABORT, '{MARK}'); END"
        connection.execute(quoting)
    connection.close()

    answer = await asyncio.to_thread(httpx.post, f"{service.url}/orchestrate", json=asking("hello"), timeout=30.0)
    await asyncio.to_thread(service.stop)

    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert MARK not in service.log + answer.text
    assert [line["code"] for line in lines(service) if line["event"] == "response"] == ["store_unavailable"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEYS", f"tenant:{MARK}"),
        ("API_KEYS", MARK),
        ("DATABASE_URL", f"mysql://bob:{MARK}@127.0.0.1/x"),
        ("DATABASE_URL", f"bob:{MARK}"),
        ("DATABASE_URL", f"postgresql://bob:p@ss:{MARK}@127.0.0.1/x"),
        ("DATABASE_URL", f"postgresql://bob:p@{MARK}@127.0.0.1/x"),
        ("DATABASE_URL", f"postgresql://bob:{MARK}@[::1/x"),
        ("LIMITS_URL", f"redis://bob:p@{MARK}@127.0.0.1:{MARK}/0"),
        ("OIDC_ISSUER", f"https://bob:{MARK}@127.0.0.1"),
        ("PORT", MARK),
        ("LM_API_KEY", MARK),
    ],
)
def test_no_wrong_setting_is_quoted(begun: Path, tmp_path: Path, name: str, value: str) -> None:
    """A secret that stands in the wrong place is none the less a secret."""
    (tmp_path / "var").symlink_to(begun / "var")
    settings = {"LM": "local"} if name == "LM_API_KEY" else {"OIDC_AUDIENCE": "x"} if name == "OIDC_ISSUER" else {}
    environment = {f"POINTSMAN_{setting}": text for setting, text in {**settings, name: value}.items()}
    command = ("serve", *(("--port", str(free_port())) if name != "PORT" else ()))
    clean = without_settings()
    done = run_program("service.cli", *command, folder=tmp_path, environment=clean | environment)

    assert done.returncode == 2, done.stderr
    assert MARK not in done.stdout + done.stderr


@pytest.mark.parametrize("address", [f"postgresql://bob:p@ss:{MARK}@127.0.0.1/x", f"postgresql://bob:p@{MARK}@127.0.0.1/x"])
def test_an_address_of_the_registry_is_not_quoted_with_its_password(tmp_path: Path, address: str) -> None:
    """A password with an @ that is not written %40 looks like a part of the host, and errors tell hosts."""
    clean = without_settings()
    settings = {"POINTSMAN_MLFLOW_URI": address}
    done = run_program("service.cli", "routers", "list", folder=tmp_path, environment=clean | settings)

    assert done.returncode == 2, done.stderr
    assert "%40" in done.stderr
    assert MARK not in done.stdout + done.stderr
