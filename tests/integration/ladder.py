"""The ladder: the real service with real dependencies, each of which can be taken away; the same questions in each state.

Between service and dependency stands a door: a port that leads on while it is open. Shut, nobody listens there, and what was connected
is cut.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import body
from tests.contract.postgres import Server
from tests.integration.test_lm_faults import completion

ONE = "gap_analyzer"  # the agent that is taken away
FORCED = {"preferences": {"rung": "lm"}}
ASKED = {
    "that agent": "Where are we leaving Fabhalta scripts on the table?",
    "another agent": "has anything shifted since the model was trained?",
    "no agent": "hello",
}
READ = completion('{"intent": "causal_impact", "sub_intent": "copay card", "confidence": 0.9}')
CHOSEN = completion('{"primary_agent": "causal_impact", "secondary_agents": [], "routing_confidence": 0.9, "routing_rationale": "effect"}')
WORDED = completion('{"response_text": "The agents have found what you asked for."}')
LM_TEXT = "did the copay card change anything for new starts"
DEPENDENCIES = {
    "lm": "the LM",
    "mlflow": "MLflow",
    "database": "PostgreSQL",
    "agent": f"one agent (`{ONE}`)",
    "agents": "all agents",
    "encoder": "the encoder's file",
}
# Every pair is in it, next to states that differ in little, so that little has to be waited for; those without MLflow are the last, since
# its server takes long to start. The encoder is read at the start only.
ORDER: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split(" and ")) - {""}
    for names in (
        "lm",
        "lm and database",
        "lm and agent",
        "lm and agents",
        "database",
        "database and agent",
        "agent",
        "agent and agents",
        "agents",
        "database and agents",
        "mlflow and database",
        "mlflow",
        "mlflow and agent",
        "mlflow and agents",
        "lm and mlflow",
        "",
    )
)
BACK_SECONDS = 120.0
ANSWER_SECONDS = 30.0  # longer is a hang, also on a busy machine


class Door:
    """A port that leads to another one while it is open."""

    def __init__(self, leads_to: int) -> None:
        self._leads_to, self.port = leads_to, 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._leading: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Let connections through."""
        if self._server is None:
            self._server = await asyncio.start_server(self._lead, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse connections, and cut those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
            for writer in list(self._open):
                writer.transport.abort()
            for task in self._leading:
                task.cancel()
            await asyncio.gather(*self._leading, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._leading.add(task)
            task.add_done_callback(self._leading.discard)
        ends = [writer]
        try:
            from_there, to_there = await asyncio.open_connection("127.0.0.1", self._leads_to)
            ends.append(to_there)
            self._open.update(ends)
            await asyncio.gather(_pass_on(reader, to_there), _pass_on(from_there, writer))
        except (OSError, asyncio.CancelledError):
            pass  # nobody is there, or the door was closed
        finally:
            self._open.difference_update(ends)
            for one in ends:
                one.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
        writer.write_eof()


async def answer_as_lm(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as an LM would that reads the copay question as one of effects."""
    with suppress(OSError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        asked = await reader.readexactly(int(length.group(1)) if length else 0)
        if b"primary_agent" in asked:
            writer.write(CHOSEN)
        elif b"sub_intent" in asked:
            writer.write(READ)
        elif b"response_text" in asked:
            writer.write(WORDED)
        await writer.drain()
    writer.close()


@dataclass
class Ladder:
    """The service and its dependencies' doors. PostgreSQL has none: it is ended and started again. `earlier` was decided before that."""

    url: str
    doors: dict[str, Door]
    server: Server
    earlier: str
    away: frozenset[str] = frozenset()

    async def take_away(self, names: frozenset[str]) -> None:
        """Bring the state about: these are away, all others are there."""
        if "mlflow" in names - self.away:
            await self._until("MLflow answers", self._registry_has_answered)
        if "database" in self.away - names:
            await asyncio.to_thread(self.server.start)
        for name, door in self.doors.items():
            shut = name in names or (name == "agent" and "agents" in names)
            await (door.shut() if shut else door.open())
        if "database" in names - self.away:
            await asyncio.to_thread(self.server.crash)
        back, self.away = self.away - names, names
        await self._until(f"the service has noticed that {', '.join(back)} came back", lambda client: self._has_noticed(client, back))

    async def _until(self, what: str, condition: Callable[[httpx.AsyncClient], Awaitable[bool]]) -> None:
        limit = time.monotonic() + BACK_SECONDS
        async with httpx.AsyncClient(base_url=self.url, timeout=ANSWER_SECONDS) as client:
            while not await condition(client):
                assert time.monotonic() < limit, what
                await asyncio.sleep(0.3)

    async def _registry_has_answered(self, client: httpx.AsyncClient) -> bool:
        return (await measured(client))["orchestrator_registry_asked_seconds"] > 0

    async def _has_noticed(self, client: httpx.AsyncClient, back: frozenset[str]) -> bool:
        if "database" in back and (await measured(client)).get("orchestrator_spooled"):
            return False
        if "lm" in back and (await client.post("/route", json=body(LM_TEXT) | FORCED)).json()["rung"] != "lm":
            return False
        if "mlflow" in back and await registry_silence(client) > SILENT_SECONDS / 2:
            return False
        wanted = {"that agent"} if "agent" in back and "agents" not in self.away else set()
        wanted |= {"another agent", *({"that agent"} if "agent" not in self.away else ())} if "agents" in back else set()
        answers = [(await client.post("/orchestrate", json=body(ASKED[which]))).json() for which in wanted]
        return all(answer["status"] == "success" for answer in answers)


async def measured(client: httpx.AsyncClient) -> dict[str, float]:
    """Return the service's metrics by series."""
    text = (await client.get("/metrics")).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def registry_silence(client: httpx.AsyncClient) -> float:
    """Return for how many seconds the registry has not answered."""
    return time.time() - (await measured(client))["orchestrator_registry_asked_seconds"]


def shown(response: httpx.Response) -> str:
    """Return what an answer says, for a cell of the table."""
    said: dict[str, Any] = response.json()
    if response.status_code != httpx.codes.OK and "code" in said:
        return f"{response.status_code} `{said['code']}`"
    if "warnings" not in said:
        return str(response.status_code)
    codes = [re.sub("^lm_.*", "lm_*", warning["code"]) for warning in said["warnings"]]
    told = f" ({', '.join(f'`{code}`' for code in dict.fromkeys(codes))})" if codes else ""
    if "status" not in said:
        return f"{response.status_code} by `{said['rung']}`{told}"
    who = [result["agent_id"] for result in said["agent_results"] if result["result"] is not None]
    return f"{response.status_code} {said['status']}{': ' + ', '.join(who) if who else ''}{told}"


@dataclass(frozen=True)
class Seen:
    """What came back in one state: by question, and which series of metrics show it."""

    cells: dict[str, str]
    metrics: tuple[str, ...]


async def observe(ladder: Ladder) -> Seen:
    """Ask everything in the state that is."""
    async with httpx.AsyncClient(base_url=ladder.url, timeout=ANSWER_SECONDS) as client:
        before = await measured(client)
        cells, decisions = {}, {}
        while "mlflow" in ladder.away and await registry_silence(client) < SILENT_SECONDS:
            await asyncio.sleep(0.3)
        for which, text in ASKED.items():
            answer = await client.post("/orchestrate", json=body(text))
            cells[which] = shown(answer)
            decisions[which] = answer.json().get("decision_id")
        cells["the LM asked for"] = shown(await client.post("/route", json=body(LM_TEXT) | FORCED))
        for when, decision_id in (("new", decisions["no agent"]), ("earlier", ladder.earlier)):
            receipt = await client.get(f"/decisions/{decision_id}")
            told = await client.post("/feedback", json={"decision_id": decision_id, "user_satisfaction": 4})
            cells[f"{when} decision"] = " / ".join(dict.fromkeys((shown(receipt), shown(told))))
        wish = {"agent_name": "orchestrator", "signature_name": "routing"}
        cells["/optimizations"] = shown(await client.post("/optimizations", json=wish))
        if ladder.away <= {"mlflow"}:  # slow: it asks MLflow in a process of its own, which takes seconds to import it
            cells["/routers/rollback"] = shown(await client.post("/routers/rollback", timeout=90.0))
        ready = await client.get("/readyz")
        notes = [note for note in ready.json()["notes"] if "spool" in note]
        cells["/readyz"] = f"{ready.status_code}{': the spool is in use' if notes else ''}"
        if "mlflow" not in ladder.away:
            await _until_asked(client)
        after = await measured(client)
    return Seen(cells, tuple(sorted(set(_telling(before, after)))))


async def _until_asked(client: httpx.AsyncClient) -> None:
    """Wait until the registry has been asked again: on a busy machine that may take longer than the silence that tells."""
    limit = time.monotonic() + TURN_SECONDS
    while await registry_silence(client) > SILENT_SECONDS / 2 and time.monotonic() < limit:
        await asyncio.sleep(0.3)


def _telling(before: dict[str, float], after: dict[str, float]) -> Iterator[str]:
    """Name the series that tell of something that is away."""
    for series, value in after.items():
        if series.startswith(GROWING) and 'outcome="answered"' not in series and value > before.get(series, 0.0):
            yield re.sub('outcome="(?:unavailable|breaker_open)"', 'outcome=~"unavailable|breaker_open"', series)
    if after["orchestrator_spooled"]:
        yield "orchestrator_spooled > 0"
    asked = after["orchestrator_registry_asked_seconds"]
    if asked and time.time() - asked > SILENT_SECONDS:
        yield "time() - orchestrator_registry_asked_seconds grows"


def page(seen: dict[frozenset[str], Seen], starts: dict[frozenset[str], str]) -> str:
    """Return docs/degradation.md: `starts` is what became of starts without the encoder."""
    alone = [state for state in seen if len(state) < 2]
    lines = [HEAD]
    for state in sorted(alone, key=lambda s: [*DEPENDENCIES].index(next(iter(s))) if s else -1):
        lines += [f"## {_named(state) or 'Nothing is away'}", "", "| asked | answer |", "|---|---|"]
        lines += [f"| {question} | {cell} |" for question, cell in seen[state].cells.items()]
        lines += ["", "Told by the metrics: " + (", ".join(f"`{series}`" for series in seen[state].metrics) or "nothing") + ".", ""]
    lines += [PAIRS, "| away | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for state in sorted((state for state in seen if len(state) == 2), key=_place):
        lines.append(f"| {_named(state)} | " + " | ".join(seen[state].cells[column] for column in COLUMNS) + " |")
    lines += ["", ENCODER, "| away | `pointsman serve` |", "|---|---|"]
    lines += [f"| {_named(state)} | {starts[state]} |" for state in sorted(starts, key=_place)]
    return "\n".join(lines) + "\n"


def _place(state: frozenset[str]) -> list[int]:
    return sorted([*DEPENDENCIES].index(name) for name in state)


def _named(state: frozenset[str]) -> str:
    text = " and ".join(DEPENDENCIES[name] for name in DEPENDENCIES if name in state)
    return text[:1].upper() + text[1:]


GROWING = ("orchestrator_lm_seconds_count", "orchestrator_fallbacks_total", "orchestrator_problems_total")
SILENT_SECONDS = 8.0  # it is asked every three
TURN_SECONDS = 40.0
COLUMNS = ("that agent", "another agent", "no agent", "the LM asked for", "new decision", "earlier decision", "/optimizations", "/readyz")
HEAD = f"""# What still works when something is away

A test takes each dependency away from a running service, alone and in pairs, asks the same questions in each state, and writes this page
from what came back: `RENEW_SNAPSHOT=1 python -m pytest tests/integration/test_degradation.py`. In no state is there an answer 500, or one
that takes for ever; when everything is back the service has noticed within seconds, and nothing has to be restarted.

The rows: `that agent`, a question for `{ONE}`, which is the one agent that is taken away; `another agent`, one for `drift_monitor`;
`no agent`, a greeting; `the LM asked for`, `POST /route` with `preferences.rung: lm`; `new decision` and `earlier decision`, the receipt
of and feedback on one that was made in this state and one from before. An answer is its HTTP status, the `status` of the body and who
answered, with the codes of its warnings; or the code of the problem. `lm_*`: `lm_unavailable`, or `lm_breaker_open` after some failures.
"""
PAIRS = """## Pairs

What comes of two that are away at once.
"""
ENCODER = """## The encoder's file

It is read when the service starts. Without it no text can be read as the router was taught, so the service refuses to start (exit code 2)
and says what is missing: a broken installation should be seen at the first replica of a rollout, not by answers that are worse. One that
runs is not concerned. The copy of the packaged encoder in `var/encoder` is made anew when it is damaged (`encoder_made_anew` in the log).
"""
