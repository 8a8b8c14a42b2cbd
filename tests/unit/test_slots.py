"""So many at once, so many waiting, the most urgent first, and the rest is turned away at once."""

import asyncio
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import Saturated
from service.flows.slots import CRITICAL, Slots


class Crowd:
    """Tasks that want a slot, hold it until they are let go, and note in which order they got it."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.got: list[str] = []
        self.turned_away: list[str] = []
        self.go = asyncio.Event()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, name: str, priority: int = 5) -> None:
        """Let somebody want a slot, and wait until it is clear what comes of it."""
        self.tasks[name] = asyncio.create_task(self._hold(name, priority))
        await settle()

    async def _hold(self, name: str, priority: int) -> None:
        try:
            async with self.slots.hold(priority):
                self.got.append(name)
                await self.go.wait()
        except Saturated:
            self.turned_away.append(name)

    async def leave(self, name: str) -> None:
        """Let somebody give up, whether it waits or holds a slot."""
        self.tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[name]
        await settle()

    async def end(self) -> None:
        """Let everybody finish."""
        self.go.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_most_urgent_goes_first_and_equals_in_their_order() -> None:
    """By priority, then by arrival."""
    crowd = Crowd(Slots(1, most_waiting=10))
    for name, priority in (("first", 7), ("tier 4", 6), ("tier 2", 4), ("tier 2 again", 4), ("critical", CRITICAL)):
        await crowd.enter(name, priority)

    await crowd.end()

    assert crowd.got == ["first", "critical", "tier 2", "tier 2 again", "tier 4"]


async def test_who_does_not_fit_is_turned_away_at_once() -> None:
    """The queue is bounded; what waits is not disturbed."""
    crowd = Crowd(Slots(1, most_waiting=1, name="gap_analyzer"))
    for name in ("holds", "waits", "too many"):
        await crowd.enter(name)

    assert (crowd.got, crowd.turned_away) == (["holds"], ["too many"])
    await crowd.end()
    assert crowd.got == ["holds", "waits"]


async def test_somebody_more_urgent_takes_the_place_of_the_least_urgent() -> None:
    """The last of the least urgent is turned away, not the critical path."""
    crowd = Crowd(Slots(1, most_waiting=2))
    for name, priority in (("holds", 5), ("waits", 5), ("waits last", 5), ("critical", CRITICAL)):
        await crowd.enter(name, priority)

    assert crowd.turned_away == ["waits last"]
    await crowd.end()
    assert crowd.got == ["holds", "critical", "waits"]


async def test_the_reserve_is_for_the_critical_path() -> None:
    """Others leave it free, however many they are; the critical path takes it without waiting, past all of them."""
    crowd = Crowd(Slots(3, most_waiting=10, reserved=1))
    for name in ("one", "two", "three"):
        await crowd.enter(name)
    await crowd.enter("critical", CRITICAL)

    assert crowd.got == ["one", "two", "critical"]
    await crowd.end()


async def test_who_gives_up_gives_its_place_back() -> None:
    """Waiting, holding, or in the very moment of its turn."""
    slots = Slots(1, most_waiting=5)
    crowd = Crowd(slots)
    for name in ("holds", "waits", "waits too"):
        await crowd.enter(name)

    await crowd.leave("waits")
    await crowd.leave("holds")
    crowd.tasks["waits too"].cancel()
    await settle()

    assert (slots.taken, slots.waiting) == (0, 0)
    await crowd.enter("late")
    assert crowd.got[-1] == "late"
    await crowd.end()


async def test_a_turn_that_comes_in_the_moment_of_leaving_goes_to_the_next() -> None:
    """The slot is given and the waiter cancelled within one step of the loop."""
    slots = Slots(1, most_waiting=5)
    crowd = Crowd(slots)
    for name in ("holds", "unlucky", "next"):
        await crowd.enter(name)

    crowd.tasks["holds"].cancel()
    await asyncio.sleep(0)  # the slot goes to "unlucky" now
    crowd.tasks["unlucky"].cancel()
    await settle()

    assert crowd.got == ["holds", "next"]
    await crowd.end()
    assert (slots.taken, slots.waiting) == (0, 0)


@settings(max_examples=60)
@given(
    limit=st.integers(1, 4),
    waiting=st.integers(0, 4),
    reserved=st.integers(0, 3),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 7), st.integers(0, 30)), max_size=40),
)
async def test_the_bounds_hold_whatever_happens(limit: int, waiting: int, reserved: int, steps: list[tuple[bool, int, int]]) -> None:
    """Never more holders than slots, nor more waiters than allowed; nobody waits beside a slot that is free; at the end all are free."""
    slots = Slots(limit, most_waiting=waiting, reserved=min(reserved, limit - 1))
    crowd = Crowd(slots)
    for number, (comes, priority, who) in enumerate(steps):
        if comes or not crowd.tasks:
            await crowd.enter(str(number), priority)
        else:
            await crowd.leave(list(crowd.tasks)[who % len(crowd.tasks)])
        assert slots.taken <= limit
        assert slots.waiting <= waiting
        assert not (slots.waiting and slots.taken < limit - min(reserved, limit - 1))

    await crowd.end()

    assert (slots.taken, slots.waiting) == (0, 0)


async def test_a_turn_is_not_kept_from_whoever_has_been_turned_away() -> None:
    """An exception that nobody waits for any more is no noise in the log."""
    slots = Slots(1, most_waiting=1)
    crowd = Crowd(slots)
    for name, priority in (("holds", 5), ("waits", 5)):
        await crowd.enter(name, priority)
    critical = asyncio.create_task(crowd.enter("critical", CRITICAL))
    await asyncio.sleep(0)

    crowd.tasks["waits"].cancel()
    await critical

    await crowd.end()
    assert (slots.taken, slots.waiting) == (0, 0)
