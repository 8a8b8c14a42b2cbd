"""The predictors' own parts: breaker, number check, loop thread, names of failures. The wire is tested in integration."""

import asyncio
import threading
import time

import pytest
from dspy.utils import exceptions as lm
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.dspy_predictors import DspyPredictors
from service.adapters.lm_breaker import Breaker
from service.adapters.lm_failures import FailureReason, classify
from service.adapters.lm_loop import LMLoop
from service.adapters.local_lm import LMEndpoint
from service.adapters.number_check import foreign_numbers
from service.adapters.text_check import checked_text
from service.contracts.lm import Finding, LMFailure, LMQuestion
from signatures.program import UnusableAnswer
from tests.fakes import Watcher

FINDING = Finding(
    agent_id="causal_impact",
    summary="The programme raised conversion by 0.12 (0.08 to 0.16), p = 3e-3.",
    evidence=("1,200 HCPs were observed, 12.5% of them in the West.",),
    caveats=("Strongest in oncology.",),
)


@pytest.mark.parametrize(
    "text",
    [
        "It raised conversion by 0.120.",
        "It raised conversion by 12%, at least 8 percent.",
        "It rose by 12 %; 1200 HCPs; a fraction of 0.125 in the West.",
        "p is 0.003, or .003.",
        "Conversion rose, mostly in oncology.",
        "Conversion changed by -0.12.",
    ],
)
def test_a_text_with_the_findings_numbers_passes(text: str) -> None:
    """Formatting is free: trailing zeros, percent for a fraction, thousands separators, scientific notation."""
    assert checked_text(text, [FINDING]) == text


@pytest.mark.parametrize(
    "text",
    ["It rose by 0.13.", "It rose by 12.", "It rose by 13%.", "In 2025 it rose by 0.12.", "１3 HCPs", "½ of them", "", "  ", "x" * 5_000],
)
def test_a_text_with_a_number_of_its_own_or_no_text_is_refused(text: str) -> None:
    """The LM may word findings; it may not add a figure, be silent or ramble."""
    refused = checked_text(text, [FINDING])

    assert isinstance(refused, LMFailure)
    assert refused.reason == "invalid_output"


@given(st.decimals(min_value=0, max_value=10**9, places=4), st.text(alphabet="abc .,()", max_size=20))
def test_any_number_of_a_finding_may_be_repeated(value: object, around: str) -> None:
    """A number passes in the form in which the finding has it, and as a percentage of it."""
    assert foreign_numbers(f"so {value} ", [f"we saw {value} {around}"]) == []


@given(st.integers(min_value=0, max_value=10**6), st.sets(st.integers(min_value=0, max_value=10**6), max_size=5))
def test_a_number_passes_exactly_when_a_finding_holds_it(value: int, held: set[int]) -> None:
    """Nothing else passes, whatever else the findings hold."""
    sources = [f"value: {number}" for number in held]

    assert (foreign_numbers(f"It is {value} now", sources) == []) == (value in held)


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_probe_through() -> None:
    """Closed, open, half open with a single probe, then closed or open again by what the probe finds."""
    now = [0.0]
    breaker = Breaker(failures=2, pause=10, clock=lambda: now[0])

    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.admits()
    breaker.failed()
    assert (breaker.open, breaker.admits()) == (True, False)

    now[0] = 10.0
    assert (breaker.admits(), breaker.admits()) == (True, False)
    breaker.failed()
    assert not breaker.admits()

    now[0] = 20.0
    assert breaker.admits()
    breaker.abandoned()
    assert breaker.admits()
    breaker.succeeded()
    assert (breaker.open, breaker.admits()) == (False, True)


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (TimeoutError(), FailureReason.TIMEOUT),
        (lm.LMTimeoutError("slow"), FailureReason.TIMEOUT),
        (lm.LMTransportError("refused"), FailureReason.UNAVAILABLE),
        (lm.LMServerError("500", status=500), FailureReason.UNAVAILABLE),
        (lm.LMRateLimitError("429", status=429), FailureReason.UNAVAILABLE),
        (lm.LMAuthError("401", status=401), FailureReason.UNAVAILABLE),
        (lm.LMInvalidRequestError("400", status=400), FailureReason.ERROR),
        (lm.LMNotConfiguredError("no key"), FailureReason.ERROR),
        (UnusableAnswer("NaN"), FailureReason.INVALID_OUTPUT),
        (RecursionError(), FailureReason.ERROR),
        (KeyError("x"), FailureReason.ERROR),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.value,
)
def test_every_exception_has_a_reason_of_the_closed_set(exc: Exception, reason: FailureReason) -> None:
    """The reason says whether the LM was slow, away, wrong or refused."""
    assert classify(exc).reason == reason.value


def test_a_failures_detail_never_repeats_what_was_said() -> None:
    """User text and model output stay out of the log."""
    assert "secret" not in classify(lm.LMServerError("the secret question", status=500)).detail


async def test_a_blocking_call_in_the_lm_thread_does_not_hold_the_caller() -> None:
    """The caller leaves on time and its loop goes on, even while the LM library sleeps without awaiting."""
    loop, ticks, free = LMLoop(), 0, threading.Event()

    async def block() -> None:
        free.wait(30)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking, started = asyncio.create_task(tick()), time.perf_counter()
    with pytest.raises(TimeoutError):
        await loop.run(block(), timeout=0.2)

    assert time.perf_counter() - started < 5.0
    assert ticks > 10
    free.set()
    ticking.cancel()
    await loop.close()


async def test_closing_gives_up_calls_in_flight() -> None:
    """A call that waits is cancelled, the thread ends, and closing twice is harmless."""
    loop = LMLoop()
    waiting = asyncio.create_task(loop.run(asyncio.sleep(60), timeout=None))
    await asyncio.sleep(0.05)

    await loop.close()
    await loop.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_question_without_options_is_a_failure() -> None:
    """There is nothing to choose from, and nobody is asked."""
    predictors = DspyPredictors(LMEndpoint("openai/x", "http://127.0.0.1:1/v1"), observer=Watcher())

    answer = await predictors.route(LMQuestion(query="x", options=(), router_version="1", programs={}), timeout=1)

    assert isinstance(answer, LMFailure)
    assert answer.reason == "error"


def test_an_endpoint_does_not_show_its_key() -> None:
    """A key in a log line would be a leak."""
    assert "hidden" not in repr(LMEndpoint("openai/x", api_key="hidden"))
