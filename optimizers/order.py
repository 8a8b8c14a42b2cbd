"""What is ordered of the jobs of `optimize`: plain data, quick to import."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from optimizers.ruling import Rules
from service.errors import ConfigurationError, PointsmanError, StoreUnavailable

Auto = Literal["light", "medium", "heavy"]
AUTO: tuple[Auto, ...] = ("light", "medium", "heavy")
OPTIMIZERS = ("student", "miprov2", "bootstrap", "gepa")
SYNTHESIS = "synthesis"
SIGNATURES = ("routing", "intent", SYNTHESIS)
CANNOT = (ValueError, FileNotFoundError, ConfigurationError, StoreUnavailable)  # what jobs raise where data or set-up cannot be used
AGAIN, WRONG = 1, 2  # exit codes: another attempt can end otherwise, or none can


class NotDone(Exception):
    """What was ordered could not be done, though nothing is wrong with the order. The message says what to do."""


class CannotBeOptimized(ConfigurationError):
    """No job, as things are set up, makes this signature better."""


def exit_code(exc: Exception) -> int:
    """Return the exit code for what a job raised: who starts it again and again (`k8s/base/learning.yaml`) goes by it.

    Database and registry may be away for a while; data and set-up stay wrong until somebody mends them.
    """
    return AGAIN if isinstance(exc, PointsmanError) and exc.retryable else WRONG


@dataclass(frozen=True, slots=True)
class Order:
    """What a better version is to be made of, and by which rules it is judged.

    Attributes:
        seed_set: labelled requests; None: those of the champion.
        golden: labelled requests to test on; None: what users said of logged requests that were never learned from.
        since: signals before it are not used.
    """

    mlflow_uri: str
    database_url: str
    rules: Rules
    risk_target: float
    seed_set: Path | None = None
    golden: Path | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """Which of an LM's programs are to be made better, how, and what it may cost."""

    signature: str
    optimizer: str
    auto: Auto = "light"
    most_calls: int | None = None
    most_usd: float | None = None


def wish_for(signature: str, optimizer: str, auto: Auto, most_calls: int | None, most_usd: float | None) -> Wish | None:
    """Return what is wished of programs, or None where it is the student that is to be fitted.

    Raises:
        CannotBeOptimized: there is no such signature, or the optimizer cannot make it better.
    """
    if signature not in SIGNATURES:
        raise CannotBeOptimized(f"The signature {signature!r} cannot be optimized. These can: {', '.join(SIGNATURES)}.")
    if optimizer != "student":
        return Wish(signature, optimizer, auto, most_calls, most_usd)
    if signature != "routing":
        raise CannotBeOptimized(f"The student has no part in the signature {signature!r}; an LM has. Set POINTSMAN_LM or --lm.")
    return None
