"""Counts what a search asks of language models, and stops it when a budget is spent or when the LM fails so often that scores mean little.

The meter sits in DSPy's engine seam, below its cache: an answer that the cache knows costs nothing and is not counted as a call.
"""

import threading
from collections import Counter
from dataclasses import dataclass

import dspy
from dspy.lm15 import Request, Response

from service.adapters.lm_failures import classify
from service.adapters.lm_price import Price

FAILING_SHARE = 0.02  # a failed call scores zero whatever the prompt; a search chooses between scores that differ by some points
FAILING_LEAST = 5


class Stopped(BaseException):
    """Ends a search at once. Not an `Exception`: DSPy takes those for a wrong answer and goes on."""


class OverBudget(Stopped):
    """The budget is spent."""


class LMTooUnreliable(Stopped):
    """The LM failed on more calls than scores can bear."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was asked so far. `usd` is None where a price is not known."""

    calls: int
    failures: int
    input_tokens: int
    output_tokens: int
    usd: float | None

    def __add__(self, other: "Spent") -> "Spent":
        """Return both together."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spent(
            self.calls + other.calls,
            self.failures + other.failures,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            usd,
        )


class Meter:
    """Counts the calls of all LMs of one search; for several threads."""

    def __init__(self, *, most_calls: int | None = None, most_usd: float | None = None) -> None:
        self._most_calls, self._most_usd = most_calls, most_usd
        self._lock = threading.Lock()
        self._calls = self._failures = self._input = self._output = 0
        self._usd: float | None = 0.0
        self.reasons: Counter[str] = Counter()

    @property
    def spent(self) -> Spent:
        """What was asked so far."""
        with self._lock:
            return Spent(self._calls, self._failures, self._input, self._output, self._usd)

    def admit(self) -> None:
        """Count a call that is about to be made.

        Raises:
            OverBudget: it would be more than the budget allows.
        """
        with self._lock:
            if self._most_calls is not None and self._calls >= self._most_calls:
                raise OverBudget(f"{self._most_calls} calls are made")
            if self._most_usd is not None and self._usd is not None and self._usd >= self._most_usd:
                raise OverBudget(f"{self._usd:.2f} USD are spent")
            self._calls += 1

    def answered(self, response: Response, price: Price | None) -> None:
        """Count what a call used."""
        used = response.usage
        read, written = used.input_tokens or 0, used.output_tokens or 0
        with self._lock:
            self._input += read
            self._output += written
            self._usd = None if price is None or self._usd is None else self._usd + read * price.input + written * price.output

    def failed(self, exc: Exception) -> None:
        """Count a call that brought no answer.

        Raises:
            LMTooUnreliable: too many did.
        """
        with self._lock:
            self._failures += 1
            found = classify(exc)
            self.reasons[found.reason] += 1
            if self._failures > max(FAILING_LEAST, FAILING_SHARE * self._calls):
                kinds = ", ".join(f"{n} {reason}" for reason, n in self.reasons.most_common())
                raise LMTooUnreliable(f"the language model failed on {self._failures} of {self._calls} calls ({kinds}): {found.detail}")


class _Metered:
    """DSPy's engine protocol around an LM that makes the calls."""

    def __init__(self, inner: dspy.LM, meter: Meter, price: Price | None) -> None:
        self._inner, self._meter, self._price = inner, meter, price
        self.supports_response_schema = inner.supports_response_schema
        self.supported_params = inner.supported_params

    def complete(self, request: Request) -> Response:
        self._meter.admit()
        try:
            response: Response = self._inner(request)
        except Exception as exc:
            self._meter.failed(exc)
            raise
        self._meter.answered(response, self._price)
        return response


class _AsyncMetered(_Metered):
    async def complete(self, request: Request) -> Response:
        self._meter.admit()
        try:
            response: Response = await self._inner.acall(request)
        except Exception as exc:
            self._meter.failed(exc)
            raise
        self._meter.answered(response, self._price)
        return response


def metered(inner: dspy.LM, meter: Meter, price: Price | None) -> dspy.LM:
    """Return an LM whose calls are counted and whose answers DSPy's cache keeps, if there is one."""
    return dspy.LM(inner.model, engine=_Metered(inner, meter, price), async_engine=_AsyncMetered(inner, meter, price), num_retries=0)
