"""`optimize --signature routing` with an LM behind HTTP: from the estimate to a registered version, and what happens when the LM dies."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from signatures.artifact import read_version
from tests.integration.office import ASKS, make_office, registry, run

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1
LM = ("--signature", "routing", "--lm", "openai/codebook")


class Server(ThreadingHTTPServer):
    """Speaks the OpenAI chat protocol; knows the right label, and gives it only when the instruction says to use the codebook."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = 0
        self.dead = False

    @property
    def settings(self) -> dict[str, str]:
        """What leads a program here."""
        return {"LM_API_BASE": f"http://127.0.0.1:{self.server_port}/v1", "LM_API_KEY": "none"}


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += 1
        content = _answer(*("\n".join(m["content"] for m in asked["messages"] if m["role"] in roles) for roles in (("system",), ("user",))))
        message = {"role": "assistant", "content": content}
        body = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
        ).encode()
        self.send_response(503 if self.server.dead else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def _answer(system: str, user: str) -> str:
    if "proposed_instruction" in system:
        return json.dumps({"proposed_instruction": "Use the codebook."})
    if "response_text" in system:
        finding = user.rpartition("[[ ## findings ## ]]\n")[2].splitlines()[0].partition(": ")[2]
        return json.dumps({"response_text": finding if "codebook" in system else "There are many of that kind."})
    if " is one of: " not in user:
        return json.dumps(dict.fromkeys(("observations", "summary"), "Short requests about orders."))
    field, _, allowed = user.rpartition(" is one of: ")
    labels = allowed.rstrip(".").split(", ")
    query = field.rpartition("[[ ## query ## ]]\n")[2].splitlines()[0]
    known = next((name for name, asks in ASKS.items() if any(_matches(ask, query) for ask in asks)), labels[-1])
    label = known if "codebook" in system and known in labels else labels[-1]
    if "intent" in field.split()[-1]:
        return json.dumps({"intent": label, "sub_intent": "that", "confidence": 0.9})
    return json.dumps({"primary_agent": label, "secondary_agents": [], "routing_confidence": 0.9, "routing_rationale": "it fits"})


def _matches(ask: str, query: str) -> bool:
    return all(part in query for part in ask.split("{}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, begun: Path) -> Path:
    """An office."""
    folder = tmp_path_factory.mktemp("programs")
    make_office(folder, begun, requests=140)
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    """An LM on loopback."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_dry_run_asks_nobody_and_is_about_right(folder: Path, server: Server) -> None:
    """The search then makes about as many calls, finds the instruction that helps, and registers it with its verdict and report."""
    before = [one.number for one in registry(folder).versions()]

    estimated = run(folder, *LM, "--dry-run", "--json", **server.settings)
    assert estimated.returncode == 0, estimated.stderr
    assert server.asked == 0
    done = run(folder, *LM, "--json", **server.settings)

    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    calls = made["search"]["spent"]["calls"]
    assert server.asked == calls
    assert made["search"]["spent"]["failures"] == 0
    assert 0.5 < calls / json.loads(estimated.stdout)["calls"] < 2.0
    figures = made["figures"]
    assert figures["lm_unsure_accuracy_after"]["low"] > figures["lm_unsure_accuracy_before"]["high"]
    new = next(one for one in registry(folder).versions() if one.number == made["version"])
    assert (new.params["job"], new.ruling) == ("miprov2", made["ruling"])
    assert new.number not in before
    report = registry(folder).read_artifact(new.run_id, "report.html") or ""
    assert "+Use the codebook." in report
    assert "best " in done.stderr


def test_a_wording_that_leaves_no_number_out_is_found_proven_and_promoted(folder: Path, server: Server) -> None:
    """From what agents found, as it is stored; the version of before is otherwise unchanged, and the page shows the instruction."""
    (folder / "rules.yaml").write_text("least_test: 30\n")
    before = registry(folder).champion()

    done = run(folder, "--signature", "synthesis", "--lm", "openai/codebook", "--rules", "rules.yaml", "--json", **server.settings)

    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    assert made["ruling"] == "promote", made["reason"]
    assert made["figures"]["whole_texts_before"]["value"] == 0.0
    assert made["figures"]["whole_texts_after"]["value"] == 1.0
    assert made["search"]["signature"] == "synthesis"
    after = registry(folder).champion()
    assert before is not None
    assert after is not None
    assert after.number == made["version"] != before.number
    old, new = read_version(before.folder), read_version(after.folder)
    assert "Use the codebook." in new.programs["synthesis"]["signature"]["instructions"]
    assert {name: state for name, state in new.programs.items() if name != "synthesis"} == old.programs
    assert (new.student, new.policy, new.manifest.lm) == (old.student, old.policy, "openai/codebook")
    run_id = next(one.run_id for one in registry(folder).versions() if one.number == after.number)
    assert "+Use the codebook." in (registry(folder).read_artifact(run_id, "report.html") or "")


def test_an_lm_that_dies_voids_the_run(folder: Path, server: Server) -> None:
    """Exit code 1, a sentence with the reason, and nothing registered."""
    before, server.dead = [one.number for one in registry(folder).versions()], True

    done = run(folder, *LM, "--optimizer", "bootstrap", **server.settings)

    assert done.returncode == 1, done.stderr
    assert "The run is void" in done.stderr
    assert "503" in done.stderr
    assert [one.number for one in registry(folder).versions()] == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*LM, "--optimizer", "bootstrap", "--budget-calls", "20"), "--budget-calls"),
        ((*LM, "--budget-usd", "1"), "Nobody knows"),
        (("--signature", "intent"), "POINTSMAN_LM"),
        ((*LM, "--optimizer", "magic"), "miprov2"),
        ((*LM, "--auto", "endless"), "heavy"),
        (("--signature", "poetry", "--lm", "openai/x"), "poetry"),
        (("--signature", "synthesis"), "POINTSMAN_LM"),
        (("--signature", "synthesis", "--lm", "local"), "never puts answers into words"),
    ],
    ids=["few calls", "no price", "no LM", "no optimizer", "no auto", "no signature", "no writer", "a small writer"],
)
def test_what_cannot_be_done_is_told_before_anybody_is_asked(folder: Path, server: Server, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2 and a sentence that says what to do."""
    done = run(folder, *arguments, **server.settings)

    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert server.asked == 0
