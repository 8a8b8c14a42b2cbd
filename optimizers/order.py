"""What is ordered of the jobs of `optimize`: plain data, quick to import."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal
from uuid import UUID

from optimizers.ruling import Rules

Auto = Literal["light", "medium", "heavy"]
AUTO: tuple[Auto, ...] = ("light", "medium", "heavy")
OPTIMIZERS = ("student", "miprov2", "bootstrap", "gepa")
SIGNATURES = ("routing", "intent")


@dataclass(frozen=True, slots=True)
class Order:
    """What a better version is to be made of, and by which rules it is judged.

    Attributes:
        seed_set: labelled requests; None: those of the champion.
        golden: labelled requests to test on; None: what users said of logged requests that were never learned from.
        since: signals of the log before it are not used.
        request_id: the request that it answers; what came with it is learned from, too.
    """

    mlflow_uri: str
    database_url: str
    rules: Rules
    risk_target: float
    seed_set: Path | None = None
    golden: Path | None = None
    since: datetime | None = None
    request_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """Which of an LM's programs are to be made better, how, and what it may cost."""

    signature: str
    optimizer: str
    auto: Auto = "light"
    most_calls: int | None = None
    most_usd: float | None = None
