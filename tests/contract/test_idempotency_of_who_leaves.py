"""One `query_id`, one answer, also where who asked first leaves before it: what was begun is not begun again where that does harm."""

import asyncio

import pytest

from service.contracts.receipt import Receipt
from tests.conftest import World, body
from tests.contract.test_idempotency import CROWD, WaitingAgents, crowd, orchestrate, replays
from tests.fakes import MemoryStore


@pytest.mark.parametrize("waiting", [1, CROWD], ids=["one waits", "twenty wait"])
async def test_when_the_first_is_cancelled_the_next_one_is_carried_out(world: World, waiting: int) -> None:
    """A request that ends early takes none with it: the next in line dispatches, the others get that answer."""
    world.agents = agents = WaitingAgents()
    question = body()
    async with world.client() as client:
        first = asyncio.create_task(orchestrate(client, question))
        await agents.reached.wait()
        others = asyncio.create_task(crowd(client, [question] * waiting))
        await asyncio.sleep(1.0)  # until all of them wait

        first.cancel()
        agents.go.set()
        responses = await asyncio.wait_for(others, 20)

        assert (await first).json()["code"] == "shutting_down"  # whom a server cancels is told
        assert {r.status_code for r in responses} == {200}
        assert sum(replays(responses)) == waiting - 1
        assert len(agents.sent) == 2
        assert len(world.store.receipts) == 1


async def test_work_that_must_not_be_repeated_is_not_when_the_first_is_cancelled(world: World) -> None:
    """What it has begun is stored, and is the answer of those who wait."""
    world.agents = agents = WaitingAgents()
    question = body("@model_trainer Train the churn model anew.")
    async with world.client() as client:
        first = asyncio.create_task(orchestrate(client, question))
        await agents.reached.wait()
        others = asyncio.create_task(crowd(client, [question] * 3))
        await asyncio.sleep(0.5)  # until all of them wait

        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        agents.go.set()
        responses = await asyncio.wait_for(others, 20)

    assert {r.status_code for r in responses} == {200}
    assert replays(responses) == [True] * 3
    assert [dispatch.target_agent for dispatch in agents.sent] == ["model_trainer"]


async def test_who_comes_while_the_answer_of_one_who_left_is_stored_gets_it(world: World) -> None:
    """The id is taken until the answer can be found."""
    storing, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def commit(self, receipt: Receipt) -> Receipt:
            storing.set()
            await go.wait()
            return await super().commit(receipt)

    world.store = Slow()
    question = body()
    async with world.client() as client:
        first = asyncio.create_task(orchestrate(client, question))
        await storing.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(orchestrate(client, question))
        await asyncio.sleep(0.1)
        go.set()
        answer = await asyncio.wait_for(second, 20)

    assert replays([answer]) == [True]
    assert len(world.agents.sent) == 1


async def test_a_cancelled_waiter_changes_nothing_for_the_first(world: World) -> None:
    """The repeat hangs up; the first one is answered and stored."""
    world.agents = agents = WaitingAgents()
    question = body()
    async with world.client() as client:
        first = asyncio.create_task(orchestrate(client, question))
        await agents.reached.wait()
        second = asyncio.create_task(orchestrate(client, question))
        await asyncio.sleep(0.02)

        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        agents.go.set()

        assert (await first).status_code == 200
        assert replays([await orchestrate(client, question)]) == [True]
        assert len(agents.sent) == 1
