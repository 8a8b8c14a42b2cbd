"""The matrix of every fault and every tier: what Pointsman should answer by the tables, and what it does against real HTTP servers.

`python -m tests.integration.fault_matrix` runs every cell and writes docs/fault-matrix.md.
"""

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import AnyHttpUrl

from service.adapters.http_agents import HttpAgents
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan, PlannedFault
from service.agents.faults.server import FaultServer
from service.catalog.loader import load_catalog
from service.catalog.model import TEMPLATE, Agent, Catalog
from service.flows.agent_call import BACKOFF, EXTENDED
from service.settings import Settings
from tests.conftest import World, body

PAGE = Path(__file__).parents[2] / "docs" / "fault-matrix.md"
TIMEOUT = 0.5  # seconds of an agent that will not answer; the tiers' own would take minutes
AMPLE = 30.0  # seconds of one that will
SLACK = 5.0  # seconds that a busy machine may take besides
REFUSED_PORT = "refused_port"
CATALOG = load_catalog()

ROWS = {  # the agent that stands for each tier, and a question that goes to it
    "0": ("feature_analyzer", "@feature_analyzer which inputs matter?"),
    "0, not idempotent": ("model_trainer", "@model_trainer train the model"),
    "2": ("gap_analyzer", "@gap_analyzer where is the gap?"),
    "3": ("drift_monitor", "@drift_monitor has anything shifted?"),
    "4": ("prediction_synthesizer", "@prediction_synthesizer what comes next?"),
    "5": ("explainer", "@explainer what is ATE?"),
}


@dataclass(frozen=True)
class Rule:
    """What a fault is to Pointsman: a code, whether asking again can help, whether the work may have begun, and how long it takes.

    A fault without a code is an answer: with `warning` where it says something of it, and `status` as it ends.
    """

    code: str | None
    recoverable: bool = False
    begun: bool = False
    silent: bool = False
    warning: str | None = None
    status: str = "success"


UNREACHABLE = Rule("agent_unavailable", recoverable=True, begun=True)
SILENT = Rule("agent_timeout", recoverable=True, begun=True, silent=True)
BROKEN = Rule("handoff_invalid")
ANSWER = Rule(None)
RULES: dict[str, Rule] = {
    REFUSED_PORT: Rule("agent_unavailable", recoverable=True),
    Fault.REFUSE: UNREACHABLE,
    Fault.HANG_UP: UNREACHABLE,
    Fault.HANG: SILENT,
    Fault.LATE_ANSWER: SILENT,
    Fault.SLOW_HEADERS: SILENT,
    Fault.SLOW_BODY: SILENT,
    Fault.STALLED_BODY: SILENT,
    Fault.CUT_CONNECTION: UNREACHABLE,
    Fault.RESET_IN_BODY: UNREACHABLE,
    Fault.CLOSED_AFTER_ANSWER: ANSWER,
    Fault.NOT_HTTP: UNREACHABLE,
    Fault.ENDLESS_HEADERS: UNREACHABLE,
    Fault.TRUNCATED_CHUNKS: UNREACHABLE,
    Fault.BROKEN_CHUNKS: UNREACHABLE,
    Fault.SHORT_LENGTH: UNREACHABLE,
    Fault.TWO_ANSWERS: ANSWER,
    Fault.INTERIM_ANSWER: ANSWER,
    Fault.HUGE_BODY: BROKEN,
    Fault.GZIP_UNASKED: BROKEN,
    Fault.GZIP_BOMB: BROKEN,
    Fault.ERROR_500: Rule("agent_error", recoverable=True, begun=True),
    Fault.RATE_LIMIT_429: Rule("agent_unavailable", recoverable=True),
    Fault.UNAVAILABLE_503: Rule("agent_unavailable", recoverable=True),
    Fault.NOT_FOUND_404: Rule("agent_unavailable"),
    Fault.HTTP_STATUS: Rule("agent_error"),
    Fault.REDIRECT: Rule("agent_error"),
    Fault.EMPTY_200: BROKEN,
    Fault.HTML_200: BROKEN,
    Fault.INVALID_JSON: BROKEN,
    Fault.NOT_UTF8: BROKEN,
    Fault.DEEP_JSON: BROKEN,
    Fault.NAN_CONFIDENCE: BROKEN,
    Fault.NO_ENVELOPE: BROKEN,
    Fault.WRONG_DISPATCH_ID: Rule("dispatch_mismatch", recoverable=True, begun=True),
    Fault.WRONG_AGENT_ID: Rule("dispatch_mismatch"),
    Fault.UNKNOWN_STATUS: Rule("status_invalid"),
    Fault.MISSING_OUTPUT: Rule("output_missing"),
    Fault.LOW_CONFIDENCE: replace(ANSWER, warning="low_confidence", status="partial"),
    Fault.CONFIDENCE_ABOVE_ONE: BROKEN,
    Fault.LATE_CLAIM: replace(ANSWER, warning="latency_exceeded"),
    Fault.FAILED: Rule("agent_error"),
    Fault.TIMED_OUT: Rule("agent_timeout", recoverable=True, begun=True),
    Fault.BLOCKED: replace(ANSWER, warning="qc_gate_blocked", status="failed"),
}
RETRY_AFTER = {Fault.RATE_LIMIT_429: 0, Fault.UNAVAILABLE_503: 0}


@dataclass(frozen=True)
class Cell:
    """One cell: how a request ends whose agent of one tier meets one fault. `seconds` are the waits that the tables add up to."""

    status: str
    codes: tuple[str, ...]
    attempts: int
    answered_by: str | None
    seconds: tuple[float, float]

    def shown(self) -> str:
        """Return the cell as the page shows it."""
        who = self.answered_by or "nobody"
        return f"{self.status}, {self.attempts}×, {who}"


def expected(fault: str, row: str) -> Cell:
    """Work out a cell from the rule of the fault and the tables of the catalogue, without running anything."""
    rule, agent = RULES[fault], CATALOG.agent[ROWS[row][0]]
    if rule.code is None:
        return Cell(rule.status, (rule.warning,) if rule.warning else (), 1, agent.name, (0.0, SLACK))
    again = rule.recoverable and (agent.idempotent or not rule.begun)
    attempts = 1 + agent.max_retries if again else 1
    waits = [TIMEOUT, TIMEOUT * EXTENDED, *[TIMEOUT] * attempts][:attempts] if rule.silent else []
    pauses = sum(BACKOFF * 2**n for n in range(attempts - 1))
    seconds = (sum(waits), sum(waits) + pauses + SLACK)
    stands_in = agent.fallback
    if stands_in is None:
        return Cell("failed", (rule.code,), attempts, None, seconds)
    if stands_in == TEMPLATE:
        return Cell("failed", (rule.code, "template_answer"), attempts, None, seconds)
    return Cell("partial", (rule.code, "fallback_used"), attempts, stands_in, seconds)


async def observe(fault: str, row: str, world: World) -> Cell:
    """Send one request whose agent meets the fault, over real sockets, and write down how it ends."""
    name, question = ROWS[row]
    planned = () if fault == REFUSED_PORT else (_entry(name, Fault(fault)),)
    outputs = {agent: {"finding": 1, "summary": f"{agent} finds 1."} for agent in CATALOG.agent}
    async with FaultServer(FaultPlan(faults=planned), outputs=outputs) as server:
        world.catalog = _catalog(server, name, TIMEOUT if RULES[fault].silent else AMPLE, refused=fault == REFUSED_PORT)
        world.agents = client = HttpAgents()  # type: ignore[assignment]  # the real adapter in place of the fake
        async with world.client() as http:
            started = time.monotonic()
            response = await http.post("/orchestrate", json=body(question))
            seconds = time.monotonic() - started
        await client.close()
        answer = response.json()
        attempts = await _attempts(world, answer, name)
        if server.counts[name] > attempts:
            raise AssertionError(f"{fault}, tier {row}: {attempts} attempts, but {server.counts[name]} arrived: {answer['warnings']}")
    answered = [r["agent_id"] for r in answer["agent_results"] if r["result"] is not None]
    codes = tuple(w["code"] for w in answer["warnings"] if w["code"] != "no_router")
    return Cell(answer["status"], codes, attempts, answered[0] if answered else None, (seconds, seconds))


async def _attempts(world: World, answer: dict[str, Any], agent: str) -> int:
    receipt = await world.store.by_query("local", answer_id(answer))
    assert receipt is not None
    runs: Any = receipt.stages["dispatch"]
    return sum(run["attempts"] for run in runs if run["agent"] == agent)


def answer_id(answer: dict[str, Any]) -> Any:
    """Return the query id of an answer."""
    from uuid import UUID

    return UUID(answer["query_id"])


def _entry(agent: str, fault: Fault) -> PlannedFault:
    fields: dict[str, Any] = {"status": 418} if fault is Fault.HTTP_STATUS else {}
    if fault in RETRY_AFTER:
        fields["retry_after"] = RETRY_AFTER[fault]
    return PlannedFault.model_validate({"agent": agent, "fault": fault, **fields})


def _catalog(server: FaultServer, faulty: str, timeout: float, *, refused: bool) -> Catalog:
    def move(agent: Agent) -> Agent:
        url = server.refused_url if refused and agent.name == faulty else server.url(agent.name)
        update: dict[str, Any] = {"urls": (AnyHttpUrl(url),), "required_output": ("finding",), "required_confidence": 0.5}
        if agent.name == faulty:
            update["timeout_ms"] = int(timeout * 1_000)
        return agent.model_copy(update=update)

    return replace(CATALOG, agents=tuple(map(move, CATALOG.agents)))


def page(cells: dict[tuple[str, str], Cell]) -> str:
    """Return docs/fault-matrix.md."""
    lines = [
        "# The fault matrix",
        "",
        "What a request gets whose agent meets a fault, by the agent's tier. Every cell was run against real HTTP servers; a test runs",
        "them all and holds them to the tables of the catalogue. Written by `python -m tests.integration.fault_matrix`.",
        "",
        "A cell says: the answer's `status`, how often the agent was called, and who answered. The second column is the warning's code",
        "in the answer. The faults are described in [drills.md](drills.md); `refused_port` is a port on which nobody listens. Tier 1 is",
        "Pointsman itself.",
        "",
        f"| fault | code | {' | '.join(f'tier {row}' for row in ROWS)} |",
        f"|---|---|{'---|' * len(ROWS)}",
    ]
    for fault in RULES:
        codes = list(dict.fromkeys(code for row in ROWS for code in cells[fault, row].codes[:1]))
        lines.append(
            f"| `{fault}` | {', '.join(f'`{c}`' for c in codes) or '-'} | {' | '.join(cells[fault, row].shown() for row in ROWS)} |"
        )
    silent = ", ".join(f"`{fault}`" for fault, rule in RULES.items() if rule.silent)
    lines += [
        "",
        f"How long it takes: the silent faults ({silent}) cost the agent's",
        "timeout for each attempt, and half of it more for the first retry; all others are known at once. Before the first retry comes a",
        "pause of at most 0.1 s, doubled for each further one. `Retry-After` is waited for. All of it stays within the budget: what",
        "cannot finish is not begun, and 30 % of the time that is left is kept for the fallback.",
    ]
    return "\n".join(lines) + "\n"


async def run_all(at_once: int = 6) -> dict[tuple[str, str], Cell]:
    """Run every cell, each in a world of its own. Deciding may take its time there: it is the agents that misbehave, not the machine."""
    room, patient = asyncio.Semaphore(at_once), Settings(_env_file=None, decision_budget_ms=30_000)  # type: ignore[call-arg]  # as in World

    async def one(fault: str, row: str) -> tuple[tuple[str, str], Cell]:
        async with room:
            return (fault, row), await observe(fault, row, World(CATALOG, None, settings=patient))

    return dict(await asyncio.gather(*(one(fault, row) for fault in RULES for row in ROWS)))


if __name__ == "__main__":
    found = asyncio.run(run_all())
    PAGE.write_text(page(found), encoding="utf-8")
