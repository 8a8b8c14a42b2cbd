"""Keys made, used and revoked by commands while a real service runs on their database."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT, body
from tests.integration.conftest import Start
from tests.programs import run_program

pytestmark = pytest.mark.timeout(300)
WITHIN = 15.0  # seconds: the service promises five, the machine may be busy


def keys(database: str, *arguments: str) -> Any:
    """Run `pointsman keys`, and return what it prints as JSON, if it does."""
    done = run_program("service.cli", "keys", *arguments, folder=ROOT, environment={"POINTSMAN_DATABASE_URL": database})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def until(asking: Callable[[], int], status: int) -> None:
    """Ask until the answer has a status."""
    limit = time.monotonic() + WITHIN
    while (seen := asking()) != status:
        assert time.monotonic() < limit, f"still {seen}, not {status}"
        time.sleep(0.1)


def test_a_running_service_follows_the_keys_of_its_database(start_service: Start, tmp_path: Path) -> None:
    """Open on loopback until there is a key; then only that key opens, for its tenant, its scopes and its quota; revoked, none does."""
    database = f"sqlite:///{tmp_path}/keys.db"
    service = start_service(database_url=database)
    url = f"{service.url}/orchestrate"
    before = httpx.post(url, json=body("hello"), timeout=20.0)

    made = keys(database, "create", "--tenant", "acme", "--scope", "tier:2", "--quota", "3", "--json")
    until(lambda: httpx.get(f"{service.url}/intents", timeout=20.0).status_code, 401)
    secret = {"Authorization": f"Bearer {made['key']}"}
    answered = httpx.post(url, json=body("@causal_impact did the rep visits lift Kisqali TRx?"), headers=secret, timeout=60.0)
    denied = httpx.post(url, json=body("@explainer what is TRx?"), headers=secret, timeout=60.0)
    receipt = httpx.get(f"{service.url}/decisions/{before.json()['decision_id']}", headers=secret, timeout=20.0)
    until(lambda: httpx.post(f"{service.url}/route", json=body("hello"), headers=secret, timeout=20.0).status_code, 429)
    listed = keys(database, "list", "--json")
    keys(database, "revoke", made["key_id"])
    until(lambda: httpx.get(f"{service.url}/intents", headers=secret, timeout=20.0).status_code, 401)

    assert before.status_code == 200
    assert (answered.json()["agents_dispatched"], denied.json()["action"]) == (["causal_impact"], "refuse")
    assert receipt.status_code == 404
    assert [(k["key_id"], k["tenant"], k["scopes"], k["state"]) for k in listed] == [(made["key_id"], "acme", ["tier:2"], "active")]
    assert httpx.get(f"{service.url}/intents", timeout=20.0).status_code == 401
    assert made["key_id"] in service.log
    assert made["key"] not in service.log
    assert "revoked" in keys(database, "list")
    service.stop()
    assert keys(database, "list", "--json")[0]["questions_today"] == 3


WRONG = {
    "a scope that nothing asks for": (["create", "--tenant", "acme", "--scope", "models:trian"], "models:train"),
    "a tier that there is not": (["create", "--tenant", "acme", "--scope", "tier:9"], "tier:5"),
    "no scope": (["create", "--tenant", "acme"], "--scope"),
    "a tenant that is no name": (["create", "--tenant", "a b", "--scope", "tier:2"], "tenant"),
    "a key that there is not": (["revoke", "0123456789ab"], "keys list"),
    "a rate that no database holds": (["create", "--tenant", "acme", "--scope", "tier:2", "--rate", "9" * 20], "--rate"),
    "a name that steers the terminal": (["create", "--tenant", "acme", "--scope", "tier:2", "--name", "n\x1b[31mred"], "printed"),
    "no days": (["create", "--tenant", "acme", "--scope", "tier:2", "--days", "0"], "days"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_makes_no_sense_is_refused_with_what_to_do(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Exit code 2, and no key is made."""
    database = f"sqlite:///{tmp_path}/keys.db"

    done = run_program("service.cli", "keys", *arguments, folder=tmp_path, environment={"POINTSMAN_DATABASE_URL": database})

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert keys(database, "list", "--json") == []
