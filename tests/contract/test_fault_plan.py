"""The plan of faults: which dispatch meets which fault, what is said of a wrong file, and the drill that follows a changing one."""

import ast
import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from pydantic import ValidationError

from service.agents.directory import AGENTS
from service.agents.faults.drill import Journal
from service.agents.faults.kinds import Fault
from service.agents.faults.plan import FaultPlan, PlannedFault, read_plan
from service.agents.faults.schedule import Schedule
from service.agents.faults.server import FaultServer, Received
from service.errors import ConfigurationError
from tests.conftest import ROOT
from tests.contract.test_fault_agent import PATIENCE, post, some_dispatch

HANG, ERROR = Fault.HANG, Fault.ERROR_500


def entry(fault: Fault = HANG, agent: str = "a", **fields: object) -> PlannedFault:
    return PlannedFault.model_validate({"agent": agent, "fault": fault, **fields})


def met(schedule: Schedule, agents: str) -> list[Fault | None]:
    """Return what one dispatch each to these agents (a letter is a name) meets."""
    found = (schedule.next_fault(agent) for agent in agents)
    return [None if one is None else one.fault for one in found]


@pytest.mark.parametrize(
    ("entries", "agents", "faults"),
    [
        ([entry()], "aaba", [HANG, HANG, None, HANG]),
        ([entry(times=2)], "abaa", [HANG, None, HANG, None]),
        ([entry(after=1)], "aba", [None, None, HANG]),
        ([entry(after=1, times=1)], "aaa", [None, HANG, None]),
        ([entry(agent="*", times=2)], "abc", [HANG, HANG, None]),
        ([entry(times=2), entry(ERROR, times=1)], "aaaa", [HANG, HANG, ERROR, None]),
        ([entry(times=1), entry(ERROR, "*")], "baa", [ERROR, HANG, ERROR]),
        ([entry(after=1), entry(ERROR, times=1)], "aaa", [ERROR, HANG, HANG]),
        ([], "a", [None]),
    ],
    ids=["always", "times", "after", "after and times", "all agents together", "in turn", "the first that strikes", "past", "none"],
)
def test_an_entry_strikes_the_dispatches_that_it_names(entries: list[PlannedFault], agents: str, faults: list[Fault | None]) -> None:
    """It counts those that reach it: of its agent, and not struck by an entry above it."""
    assert met(Schedule(FaultPlan(faults=tuple(entries))), agents) == faults


def test_a_share_strikes_about_that_many_and_the_same_ones_each_time() -> None:
    """By the seed, and by nothing else."""
    plans = [FaultPlan(seed=seed, faults=(entry(share=0.3, after=100, times=1_000),)) for seed in (1, 1, 2)]

    first, again, other = ([fault is not None for fault in met(Schedule(plan), "a" * 1_200)] for plan in plans)

    assert sum(first) == pytest.approx(300, abs=50)
    assert not any(first[:100] + first[1_100:])
    assert first == again != other


def test_a_changed_plan_goes_on_with_the_counts_of_what_stayed() -> None:
    """What is new begins at zero; so does everything under another seed."""
    schedule = Schedule(FaultPlan(faults=(entry(times=2), entry(agent="b"))))
    assert met(schedule, "a") == [HANG]

    schedule.follow(FaultPlan(faults=(entry(ERROR, agent="b", times=1), entry(times=2))))
    assert met(schedule, "aabb") == [HANG, None, ERROR, None]

    schedule.follow(FaultPlan(seed=1, faults=(entry(times=2),)))
    assert met(schedule, "aaa") == [HANG, HANG, None]


async def test_a_server_goes_on_with_another_plan_or_begins_it_anew() -> None:
    """As an operator ends a fault, or plays it again."""
    plan = FaultPlan(faults=(entry(ERROR, times=1),))

    async with FaultServer(plan) as server:

        async def status() -> int:
            return (await post(server.url("a"), some_dispatch("a"))).status_code

        assert [await status(), await status()] == [500, 200]
        server.follow(plan)
        assert await status() == 200
        server.follow(plan, anew=True)
        assert await status() == 500
        server.follow(FaultPlan())
        assert await status() == 200
        assert [one.fault for one in server.received] == [ERROR, None, None, ERROR, None]


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_a_plan_is_read_as_it_is_written(tmp_path: Path) -> None:
    """With the fields' defaults."""
    path = written(tmp_path, "seed: 3\nfaults:\n  - {agent: '*', fault: hang, seconds: 2}\n  - {agent: a, fault: redirect, status: 308}\n")

    plan = read_plan(path, ["a"])

    assert plan == FaultPlan(seed=3, faults=(entry(agent="*", seconds=2.0), entry(Fault.REDIRECT, status=308)))
    assert plan.faults[1].location == "http://169.254.169.254/"
    assert str(entry(times=3, after=1, share=0.5)) == "a: hang, 3 dispatches after the first 1, each with a chance of 0.5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("faults: [{agent: explainr, fault: hang}]", "1: there is no agent 'explainr'. Did you mean 'explainer'?"),
        ("faults:\n  - agent: explainer\n    fault: hng", "3: there is no fault 'hng'. Did you mean 'hang'?"),
        ("faults:\n  - agent: '*'\n    fault: hang\n    tims: 3", "4: unknown field 'tims'. Did you mean 'times'?"),
        ("fault: []\nfaults: []", "1: unknown field 'fault'. Did you mean 'faults'?"),
        ("faults:\n  - {agent: '*'}", "2: the field 'fault' is missing; add it."),
        ("seed: 1", "1: the field 'faults' is missing; add it."),
        ("faults: [{agent: '*', fault: hang, times: 0}]", "1: 'times' is 0; it must be greater than or equal to 1."),
        ("faults: [{agent: '*', fault: hang, share: .nan}]", "1: 'share' is nan; it must be a finite number."),
        ("faults: [{agent: '*', fault: hang, retry_after: 1}]", "1: 'retry_after' means nothing to hang; it is for http_status, "),
        (
            "faults: [{agent: '*', fault: rate_limit_429, retry_after: -1}]",
            "1: 'retry_after' is -1; it must be seconds, or the header's text",
        ),
        ("faults:\n- agent: '*'\n  fault: http_status", "2: http_status needs the field 'status', such as 418."),
        ("faults: [{agent: '*', fault: redirect, status: 200}]", "1: 'status' is 200; a redirect has one of 301, 302, 303, 307, 308."),
        ("faults: [{agent: '*', fault: redirect, location: 'a b'}]", "1: 'location' is 'a b'; it must be an address without spaces"),
        ("faults: [hang]", "1: 'faults' is 'hang'; it must be a mapping."),
        ("- agent: x", "1: the file must be a mapping"),
        ("faults:\n  - agent: *\n", "2: this is not valid YAML"),
    ],
    ids=lambda value: str(value)[3:40],
)
def test_a_wrong_plan_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    """And with what was meant, where that can be guessed; one problem is said once."""
    path = written(tmp_path, text)

    with pytest.raises(ConfigurationError) as raised:
        read_plan(path, ["explainer", "health_score"])

    header, *problems = str(raised.value).split("\n")
    assert "1 problem (its form is in docs/drills.md)" in header
    assert [problem.startswith(f"{path}:{said}") for problem in problems] == [True], problems


def test_all_problems_of_a_plan_are_said_at_once(tmp_path: Path) -> None:
    """In the order of the lines."""
    path = written(tmp_path, "seed: x\nfaults:\n  - {agent: '*', fault: hng, tims: 2}\n  - 7\n  - {agent: b, fault: hang, times: 0}\n")

    with pytest.raises(ConfigurationError) as raised:
        read_plan(path, ["a"])

    assert [int(n) for n in re.findall(r"yaml:(\d+):", str(raised.value))] == [1, 3, 3, 4, 5, 5]


def test_a_plan_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """Whether there is nothing or a folder."""
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ConfigurationError, match="is not a file"):
            read_plan(path)


def test_an_entry_made_in_code_is_held_to_the_same_rules() -> None:
    """A test cannot ask for what a plan cannot."""
    with pytest.raises(ValidationError, match="'seconds' means nothing to error_500"):
        entry(ERROR, seconds=1.0)


def test_the_worked_drills_are_plans(tmp_path: Path) -> None:
    """The YAML of the page is read as an operator's file would be."""
    plans = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "drills.md").read_text(), re.DOTALL)

    assert len(plans) >= 3
    for text in plans:
        assert read_plan(written(tmp_path, text), AGENTS).seed >= 0


async def test_the_example_for_tests_runs_as_it_stands() -> None:
    """With nothing around it."""
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "drills.md").read_text(), re.DOTALL)[0]

    await eval(compile(example, "docs/drills.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})


def test_the_journal_says_no_more_than_a_few_lines_a_second() -> None:
    """But counts everything, and says how much it left out."""
    said, now = list[str](), [0.0]
    journal = Journal(said.append, lambda: now[0])

    for second in (0.0, 1.5):
        now[0] = second
        for _ in range(8):
            journal.note(Received("explainer", uuid4(), None, None, {}, HANG))
    journal.close(20)

    burst = [*(["hang"] * 5), "... and 3 more"]
    assert [line.partition(":")[0] for line in said] == [*burst, *burst, "16 of 20 dispatches met a fault"]


class Drill:
    """`pointsman agents --faults` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.address = ""

    async def said(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 60.0)).decode().rstrip()

    async def warned(self, text: str) -> str:
        """Return the next line of its errors that holds a text. The agents that load meanwhile may have something to say too."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60.0):
            while line := (await self.process.stderr.readline()).decode():
                if text in line:
                    return line.rstrip()
        raise AssertionError(text)

    async def status(self, agent: str) -> int:
        """Return the HTTP status of a dispatch to an agent."""
        return (await post(f"{self.address}/agents/{agent}", some_dispatch(agent))).status_code


@asynccontextmanager
async def drilling(path: Path) -> AsyncIterator[Drill]:
    command = (sys.executable, "-m", "service.cli", "agents", "--port", "0", "--faults", str(path))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    drill = Drill(process)
    try:
        first = await drill.said()
        drill.address = first.split(" ")[4]
        assert first == f"The agents listen at {drill.address} and act out {path}:"
        yield drill
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_drill_is_followed_ended_and_begun_anew(tmp_path: Path) -> None:
    """What is active is said, and each fault as it happens; a changed file, a wrong one, SIGHUP and SIGTERM do what they should."""
    path = written(tmp_path, "faults:\n  - {agent: '*', fault: error_500, times: 1}\n")

    async with drilling(path) as drill:
        assert await drill.said() == "  all agents: error_500, 1 dispatch"
        assert [await drill.status("nobody"), await drill.status("nobody")] == [500, 404]
        assert (await drill.warned("error_500")).startswith("error_500: nobody, dispatch ")

        drill.process.send_signal(signal.SIGHUP)
        assert [await drill.said(), await drill.said()] == ["The plan begins anew:", "  all agents: error_500, 1 dispatch"]
        assert [await drill.status("nobody"), await drill.status("nobody")] == [500, 404]
        await drill.warned("error_500: nobody")

        path.write_text("faults:\n  - {agent: '*', fault: eror_500}\n")
        assert (await drill.warned("Did you mean 'error_500'?")).startswith(f"{path}:2: ")
        assert await drill.warned("The plan before") == "The plan before stays in force."

        path.write_text("faults: []\n")
        assert [await drill.said(), await drill.said()] == ["The plan has changed:", "  no faults"]
        assert await drill.status("nobody") == 404
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:  # the agents may still be loading
            assert (await client.get(f"{drill.address}/healthz")).json()["status"] == "ok"

        drill.process.send_signal(signal.SIGTERM)
        assert await drill.warned(" met a fault") == "2 of 5 dispatches met a fault"
        assert await asyncio.wait_for(drill.process.wait(), 60.0) == 0


async def test_a_wrong_plan_ends_the_command_with_code_2(tmp_path: Path) -> None:
    """Before anything is served."""
    path = written(tmp_path, "faults: [{agent: '*', fault: hng}]")
    command = (sys.executable, "-m", "service.cli", "agents", "--port", "0", "--faults", str(path))

    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, error = await process.communicate()

    assert process.returncode == 2
    assert "Did you mean 'hang'?" in error.decode()
