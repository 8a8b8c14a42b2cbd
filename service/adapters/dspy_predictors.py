"""The LM rung: `Predictors` on DSPy. Whatever an LM does becomes a verdict, a text or an `LMFailure` with a reason, and always on time.

DSPy is imported on the first use (or by `warm`), in the LM thread, because it takes a second and more. Nothing here configures DSPy
globally: every call runs in a `dspy.context` with LM and adapter, without trace and history. It knows no stage and no policy.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from opentelemetry.trace import SpanKind

from service.adapters.lm_breaker import Breaker
from service.adapters.lm_client import make_lm
from service.adapters.lm_failures import FailureReason, classify, failure
from service.adapters.lm_loop import LMLoop
from service.adapters.lm_price import Price, price_of
from service.adapters.local_lm import PROVIDER, LMEndpoint
from service.adapters.text_check import checked_text
from service.contracts.lm import AgentOption, LMFailure, LMQuestion, LMVerdict, SynthesisQuestion
from service.ports import LMCalled, Observer
from service.tracing import span
from signatures.inventory import ModelClass

if TYPE_CHECKING:
    from signatures.composition import SynthesisProgram
    from signatures.program import RoutingProgram
    from signatures.prompting import Model

T = TypeVar("T")
Usage = dict[str, Mapping[str, object]]  # what each model used, by OpenAI's names
MOST_TOKENS = 100_000_000  # of a call: what a server says beyond it is not so
FAIR_SECONDS = 0.5  # a timeout shorter than this says nothing about the LM
MARGIN_SECONDS = 0.05  # the program ends this much earlier than its caller leaves, to hand over what it has
WARM_SECONDS = 60.0
PROGRAMS_KEPT = 4
_COUNTED = {FailureReason.TIMEOUT.value, FailureReason.UNAVAILABLE.value, FailureReason.ERROR.value}


class DspyPredictors:
    """Asks up to three models: light ones classify, the primary one routes, the strong one writes. `observer` is told of each run."""

    def __init__(
        self, primary: LMEndpoint, *, observer: Observer, light: LMEndpoint | None = None, strong: LMEndpoint | None = None
    ) -> None:
        self._observer = observer
        self._endpoints = {ModelClass.PRIMARY: primary, ModelClass.LIGHT: light or primary, ModelClass.STRONG: strong or primary}
        self._breakers = {endpoint: Breaker() for endpoint in self._endpoints.values()}
        self._loop = LMLoop()
        self._models: dict[ModelClass, Model] = {}
        self._routers, self._writers = _Latest["RoutingProgram"](), _Latest["SynthesisProgram"]()
        self._prices: dict[str, Price | None] = {}

    @property
    def available(self) -> bool:
        """Say whether the routing LM may be asked now, as far as is known without asking it."""
        return not self._breakers[self._endpoints[ModelClass.LIGHT]].open

    async def warm(self, *, timeout: float = WARM_SECONDS) -> None:
        """Import DSPy and make the LMs; a local one answers a first question, which fills its prefix cache.

        Raises:
            TimeoutError: it took longer than `timeout` seconds.
        """
        await self._loop.run(self._warm(), timeout=timeout)

    async def route(self, question: LMQuestion, *, timeout: float) -> LMVerdict | LMFailure:
        """Choose an intent and agents among the question's options."""
        if not question.options:
            return failure(FailureReason.ERROR, "The question offers no agent.")
        used, seconds = Usage(), max(timeout - MARGIN_SECONDS, timeout * 0.9)
        first = ModelClass.LIGHT if len({option.intent for option in question.options}) > 1 else ModelClass.PRIMARY
        breaker = self._breakers[self._endpoints[ModelClass.PRIMARY]]
        apart = breaker is not self._breakers[self._endpoints[first]]  # then the second call asks another LM
        second = _SecondCall(wanted=not apart or breaker.admits())
        try:
            return await self._ask("routing", first, self._route(question, seconds, used, second), timeout, used, second if apart else None)
        finally:
            if apart and second.wanted:
                _tell(breaker, second.came, second.allowed)

    async def compose(self, question: SynthesisQuestion, *, timeout: float) -> str | LMFailure:
        """Word findings as one answer; a text with a number that no finding holds is refused."""
        used = Usage()
        answer = await self._ask("synthesis", ModelClass.STRONG, self._compose(question, used), timeout, used)
        return answer if isinstance(answer, LMFailure) else checked_text(answer, question.findings)

    async def close(self) -> None:
        """Stop the LM thread and give up calls in flight."""
        await self._loop.close()

    async def _ask(
        self,
        program: str,
        model_class: ModelClass,
        work: Coroutine[Any, Any, T | LMFailure],
        timeout: float,
        used: Usage,
        second: "_SecondCall | None" = None,
    ) -> T | LMFailure:
        """Run a program, if the LM may be asked; the work notes in `used` what it used, and in `second` how another LM fared."""
        breaker = self._breakers[self._endpoints[model_class]]
        if not breaker.admits():
            work.close()
            self._observer.notice(LMCalled(program, FailureReason.BREAKER_OPEN.value, 0.0))
            return failure(FailureReason.BREAKER_OPEN, "The language model failed several times; it is left alone for a while.")
        answer: T | LMFailure | None = None
        started = time.monotonic()
        with span(f"lm {program}", SpanKind.CLIENT) as told:
            try:
                answer = await self._loop.run(work, timeout=timeout)
            except TimeoutError:
                answer = failure(FailureReason.TIMEOUT, f"The language model did not answer within {timeout:.2f} s.")
            finally:
                _tell(breaker, answer, timeout)
                failed = answer if second is None or not isinstance(second.came, LMFailure) else second.came  # its outage is to be seen
                called = self._called(program, failed, time.monotonic() - started, used)
                told.set_attributes(_attributes(self._endpoints[model_class].model, called))
                self._observer.notice(called)
        return answer

    def _called(self, program: str, answer: object, seconds: float, used: Usage) -> LMCalled:
        outcome = answer.reason if isinstance(answer, LMFailure) else "cancelled" if answer is None else "answered"
        read, written = (
            sum(n for u in used.values() if isinstance(n := u.get(kind), int)) for kind in ("prompt_tokens", "completion_tokens")
        )
        return LMCalled(program, outcome, seconds, read, written, self._cost_of(used) if used else None)

    async def _route(self, question: LMQuestion, seconds: float, used: Usage, second: "_SecondCall") -> LMVerdict | LMFailure:
        try:
            program = self._routers.get(question.router_version, lambda: self._router(question))
            import dspy

            with dspy.context(trace=None, disable_history=True, track_usage=True):
                found = await program.acall(question=question, seconds=seconds, choose=second.wanted)
            used |= _plain(found.get_lm_usage() or {})
            second.came = True if found.complete else classify(found.failure) if found.failure is not None else None
            second.allowed = seconds if found.allowed is None else found.allowed
            return LMVerdict(
                intent=found.intent,
                sub_intent=found.sub_intent,
                primary_agent=found.primary_agent,
                secondary_agents=tuple(found.secondary_agents),
                confidence=found.confidence,
                rationale=found.rationale,
                usd=self._cost_of(used) if used else None,
            )
        except Exception as exc:  # noqa: BLE001  # the seam: LM libraries raise what they like, and the port promises a result
            return classify(exc)

    def _cost_of(self, usage: Usage) -> float | None:
        """Return what an answer cost, from what each model used; None where a price is not known (or not yet)."""
        prices = [(self._prices.get(model), used) for model, used in usage.items()]
        return sum(price.of(used) for price, used in prices if price is not None) if all(price for price, _ in prices) else None

    async def _compose(self, question: SynthesisQuestion, used: Usage) -> str | LMFailure:
        try:
            program = self._writers.get(question.router_version, lambda: self._writer(question))
            import dspy

            with dspy.context(trace=None, disable_history=True, track_usage=True):
                answer = await program.acall(question=question)
            used |= _plain(answer.get_lm_usage() or {})
            return str(answer.response_text)
        except Exception as exc:  # noqa: BLE001  # as above
            return classify(exc)

    def _router(self, question: LMQuestion) -> "RoutingProgram":
        models = self._ready()
        from signatures.program import RoutingProgram

        return RoutingProgram(models).load_programs(question.programs)

    def _writer(self, question: SynthesisQuestion) -> "SynthesisProgram":
        model = self._ready()[ModelClass.STRONG]
        from signatures.composition import SynthesisProgram

        return SynthesisProgram(model).load_programs(question.programs)

    def _ready(self) -> "dict[ModelClass, Model]":
        if not self._models:
            made = {endpoint: _make_model(endpoint) for endpoint in set(self._endpoints.values())}
            self._models = {model_class: made[endpoint] for model_class, endpoint in self._endpoints.items()}
        return self._models

    async def _warm(self) -> None:
        self._ready()
        for endpoint in self._breakers:
            self._prices[endpoint.model] = await asyncio.to_thread(price_of, endpoint)
        if self._endpoints[ModelClass.LIGHT].model.startswith(f"{PROVIDER}/"):
            await self._route(_FIRST_QUESTION, WARM_SECONDS, Usage(), _SecondCall(wanted=True))


@dataclass(slots=True)
class _SecondCall:
    """Whether the choice of agents is to be asked for, and what came of it: True, what went wrong, or None where it was not asked for."""

    wanted: bool
    came: LMFailure | bool | None = None
    allowed: float = 0.0  # seconds that it had


class _Latest(Generic[T]):
    """The programs of the latest router versions."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, T] = OrderedDict()

    def get(self, version: str, make: Callable[[], T]) -> T:
        """Return the program of a version, made where it is not there."""
        if version not in self._kept:
            self._kept[version] = make()
            if len(self._kept) > PROGRAMS_KEPT:
                self._kept.popitem(last=False)
        return self._kept[version]


def _attributes(model: str, called: LMCalled) -> dict[str, str | int]:
    """Return what a span tells of a run, by OpenTelemetry's names for generative models where there are any."""
    return {
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": called.prompt_tokens or 0,
        "gen_ai.usage.output_tokens": called.completion_tokens or 0,
        "pointsman.outcome": called.outcome,
    }


def _plain(usage: Mapping[str, Mapping[str, object]]) -> Usage:
    """Return what was used, in numbers that can be added up: a server may say anything."""
    return {
        model: {kind: min(max(0, n), MOST_TOKENS) for kind, n in used.items() if isinstance(n, int) and not isinstance(n, bool)}
        for model, used in usage.items()
    }


def _tell(breaker: Breaker, answer: object, timeout: float) -> None:
    if not isinstance(answer, LMFailure):
        breaker.abandoned() if answer is None else breaker.succeeded()
    elif answer.reason == FailureReason.TIMEOUT.value and timeout < FAIR_SECONDS:
        breaker.abandoned()
    elif answer.reason in _COUNTED:
        breaker.failed()
    else:
        breaker.succeeded()  # it answered, if badly


def _make_model(endpoint: LMEndpoint) -> "Model":
    from signatures.prompting import Model, style_for

    lm = make_lm(endpoint)
    import dspy

    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    return Model(lm, style_for(endpoint.model))


_FIRST_QUESTION = LMQuestion(
    query="hello",
    options=(
        AgentOption(name="first", intent="first", description="the first agent"),
        AgentOption(name="second", intent="second", description="the second agent"),
    ),
    router_version="warm",
    programs={},
)
