"""Watches a search for programs: each trial with its score, the best one so far, and what was spent. DSPy tells it by callbacks."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from optimizers.lm_meter import Meter, Spent
from optimizers.order import Wish
from service.contracts.model import JsonObject


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluation of one candidate on validation questions.

    Attributes:
        score: share that is right.
        n: questions.
        full: on all of them, so that it may win.
        seconds: since the search began, when it ended.
    """

    score: float
    n: int
    full: bool
    seconds: float
    spent: Spent


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search did.

    Attributes:
        before, after: program states by signature name.
        ended_early: why, or None.
    """

    wish: Wish
    lm: str
    trials: Sequence[Trial]
    spent: Spent
    before: Mapping[str, JsonObject]
    after: Mapping[str, JsonObject]
    ended_early: str | None

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        trials: list[JsonObject] = [{"score": t.score, "n": t.n, "full": t.full, "seconds": round(t.seconds, 1)} for t in self.trials]
        return {
            "signature": self.wish.signature,
            "optimizer": self.wish.optimizer,
            "lm": self.lm,
            "trials": [*trials],
            "spent": asdict(self.spent),
            "ended_early": self.ended_early,
        }


class Watch(BaseCallback):  # type: ignore[misc]  # dspy is untyped
    """Collects the trials of one search.

    Attributes:
        trials: in order; the first is the program as it was.
        best: the program with the best score on all validation questions; of equals the first.
        whole: how many validation questions there are; a trial on fewer cannot win.
    """

    def __init__(self, meter: Meter, tell: Callable[[str], None], expected_calls: int | None) -> None:
        self._meter, self._tell, self._expected = meter, tell, expected_calls
        self._began = time.monotonic()
        self._running: dict[str, Mapping[str, Any]] = {}
        self.whole = 0
        self.trials: list[Trial] = []
        self.best: dspy.Module | None = None

    def on_evaluate_start(self, call_id: str, instance: dspy.Evaluate, inputs: dict[str, Any]) -> None:
        """Note which program is tried on what."""
        self._running[call_id] = {"devset": instance.devset, **{k: v for k, v in inputs.items() if v is not None}}
        self.say()

    def on_evaluate_end(self, call_id: str, outputs: dspy.Prediction | None, exception: Exception | None = None) -> None:
        """Note its score."""
        tried = self._running.pop(call_id)
        if outputs is None:
            return
        full = len(tried["devset"]) >= self.whole
        score = outputs.score / 100
        if full and score > self.score:
            self.best = tried["program"].deepcopy()
        self.trials.append(Trial(score, len(tried["devset"]), full, time.monotonic() - self._began, self._meter.spent))
        self.say()

    @property
    def score(self) -> float:
        """The best score so far; below zero before there is one."""
        return max((trial.score for trial in self.trials if trial.full), default=-1.0)

    def say(self) -> None:
        """Tell how far it is."""
        spent = self._meter.spent
        parts = [f"trial {len(self.trials) + 1}"]
        if self.trials:
            parts.append(f"best {self.score:.1%} of validation (before {self.trials[0].score:.1%})")
        parts.append(f"{spent.calls} calls")
        parts.append(f"{(spent.input_tokens + spent.output_tokens) / 1_000:,.0f} thousand tokens")
        if spent.usd:
            parts.append(f"{spent.usd:.2f} USD")
        if self._expected is not None and spent.calls >= 20:
            left = max(0.0, self._expected / spent.calls - 1.0) * (time.monotonic() - self._began)
            parts.append(f"about {left / 60:.0f} min left")
        self._tell(", ".join(parts))
