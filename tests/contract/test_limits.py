"""Rates and quotas: what a key may send, told in headers, apart from other keys, and together over processes."""

import asyncio
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from service.access import limits as limits_module
from service.access.keys import Keys, digest_of
from service.access.limits import Limits
from service.adapters.sql_store import SqlStore
from service.contracts.caller import Caller
from service.errors import QuotaExceeded, RateLimited, StoreUnavailable
from tests.conftest import World, body
from tests.contract.asking import answered, assert_problem, two_tenants
from tests.programs import free_port, require_program

A, B = Caller(tenant="acme", key_id="a"), Caller(tenant="acme", key_id="b")


async def sent(limits: Limits, caller: Caller, times: int) -> int:
    """Send requests, and return how many passed."""
    passed = 0
    for _ in range(times):
        try:
            await limits.pass_request(caller)
        except RateLimited:
            continue
        passed += 1
    return passed


async def test_a_key_may_send_its_rate_and_no_more() -> None:
    """Each key has its own; one that says nothing has the service's, and without that any number."""
    limits = Limits(rate=3)

    assert await sent(limits, A, 10) == 3
    assert await sent(limits, B.model_copy(update={"rate_per_minute": 5}), 10) == 5
    assert await sent(Limits(), A, 50) == 50


async def test_whoever_sends_too_much_is_told_when_to_come_back() -> None:
    """Within the minute."""
    limits = Limits(rate=2)
    await sent(limits, A, 2)

    with pytest.raises(RateLimited, match="2 requests a minute") as caught:
        await limits.pass_request(A)

    assert 1 <= caught.value.retry_after <= 120


def ask(limits: Limits, caller: Caller, times: int) -> int:
    """Ask questions, and return how many passed."""
    passed = 0
    for _ in range(times):
        try:
            limits.pass_question(caller)
        except QuotaExceeded:
            continue
        passed += 1
    return passed


async def test_a_key_may_ask_its_quota_and_no_more() -> None:
    """The next day begins at midnight, UTC."""
    limits = Limits(quota=4)

    assert ask(limits, A, 9) == 4
    assert ask(limits, B.model_copy(update={"quota_per_day": 2}), 9) == 2
    with pytest.raises(QuotaExceeded) as caught:
        limits.pass_question(A)
    assert 0 < caught.value.retry_after <= 86_400


async def test_a_new_day_has_a_new_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked yesterday is no burden."""
    limits = Limits(quota=1)
    ask(limits, A, 1)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)

    monkeypatch.setattr(limits_module, "_utc_day", lambda: tomorrow)

    assert ask(limits, A, 2) == 1


async def test_processes_count_questions_together(database: str) -> None:
    """On SQLite and PostgreSQL: what another process has answered counts here after the next counting, and after a restart."""
    store = SqlStore(database)
    await store.open()
    one, other = Limits(quota=10, count=store.count_questions), Limits(quota=10, count=store.count_questions)
    ask(one, A, 6)
    ask(other, A, 1)
    await one.store()
    await other.store()

    passed = ask(other, A, 9)
    await other.store()
    later = Limits(quota=10, count=store.count_questions)
    first = ask(later, A, 1)
    await later.store()
    await store.close()

    assert (passed, first) == (3, 1)
    assert ask(later, A, 5) == 0


async def test_what_cannot_be_counted_now_is_counted_later() -> None:
    """The database is away for a while; the quota holds here meanwhile."""
    away, kept = True, dict[str, int]()

    async def count(_: date, asked: Mapping[str, int]) -> Mapping[str, int]:
        if away:
            raise StoreUnavailable("It is away.")
        kept.update({key: kept.get(key, 0) + n for key, n in asked.items()})
        return kept

    limits = Limits(quota=5, count=count)
    ask(limits, A, 3)
    await limits.store()
    passed = ask(limits, A, 9)
    away = False
    await limits.store()
    await limits.store()

    assert (passed, kept) == (2, {"a": 5})
    assert ask(limits, A, 1) == 0


async def test_counting_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few seconds."""
    counted = asyncio.Event()

    async def count(_: date, asked: Mapping[str, int]) -> Mapping[str, int]:
        counted.set()
        return asked

    monkeypatch.setattr(limits_module, "COUNT_SECONDS", 0.01)
    limits = Limits(count=count)
    ask(limits, A, 1)
    task = asyncio.create_task(limits.follow())

    await asyncio.wait_for(counted.wait(), 5)
    task.cancel()


async def test_the_answer_tells_what_is_left(world: World) -> None:
    """As the IETF's draft on RateLimit headers has it, on every answer of a key that has a rate."""
    world.keys, world.limits = two_tenants(), Limits(rate=3)
    async with world.client() as client:
        client.headers["X-API-Key"] = "acme"
        replies = [await client.get("/intents") for _ in range(4)]
        client.headers["X-API-Key"] = "umbrella"
        other = await client.get("/intents")

    assert [r.headers.get("ratelimit-policy") for r in replies[:3]] == ['"minute";q=3;w=60'] * 3
    assert [r.headers["ratelimit"].split(";")[1] for r in replies[:3]] == ["r=2", "r=1", "r=0"]
    assert_problem(replies[3], 429, "rate_limited", retryable=True)
    assert int(replies[3].headers["retry-after"]) >= 1
    assert other.status_code == 200


async def test_only_questions_are_counted_for_the_quota(world: World) -> None:
    """A question that is refused for the quota reaches no agent; feedback on earlier answers and looking at them still pass."""
    digest = digest_of("key")
    world.keys = Keys({digest: Caller(tenant="acme", permissions=frozenset({"tier:*"}), key_id="k", quota_per_day=1)})
    async with world.client() as client:
        client.headers["X-API-Key"] = "key"
        answer = await answered(client)
        refused = [await client.post(path, json=body()) for path in ("/orchestrate", "/orchestrate/stream", "/route")]
        looked = await client.get(f"/decisions/{answer['decision_id']}")
        told = await client.post("/feedback", json={"decision_id": answer["decision_id"], "user_satisfaction": 5})

    for response in refused:
        assert_problem(response, 429, "quota_exceeded", retryable=True)
    assert (looked.status_code, told.status_code, len(world.agents.sent)) == (200, 200, 1)


@pytest.fixture(params=["port", "socket"])
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a Redis."""
    program = require_program("redis-server", "redis-server")
    port = free_port()
    by_socket = ["--unixsocket", str(tmp_path / "redis.sock")]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", *by_socket]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}/0" if request.param == "port" else f"redis+unix://{tmp_path}/redis.sock?db=0"
    server.kill()
    server.wait()


async def test_processes_share_a_rate_by_redis(redis: str) -> None:
    """What one has let pass, another does not."""
    one, other = Limits(rate=4, shared=redis), Limits(rate=4, shared=redis)
    await wait_for_redis(one)
    await one.require_shared()

    passed = await sent(one, A, 3) + await sent(other, A, 3)
    await asyncio.gather(one.close(), other.close())

    assert passed == 4


async def test_without_its_redis_a_process_counts_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The limit holds, nobody is refused for it, and the log says so once."""
    limits = Limits(rate=3, shared=f"redis://127.0.0.1:{free_port()}/0")

    passed = await sent(limits, A, 9)
    await limits.close()

    assert passed == 3
    assert [r.message.partition(":")[0] for r in caplog.records] == ["limits_not_shared"]


async def wait_for_redis(limits: Limits) -> None:
    """Wait until Redis counts."""
    for n in range(200):
        limits._shared_from = 0.0
        await limits.pass_request(Caller(key_id=f"wait {n}"))
        if limits._shared_from == 0.0:
            return
        await asyncio.sleep(0.02)
    pytest.fail("Redis did not start")
