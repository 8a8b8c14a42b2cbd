"""What a question of drift asks about: single features, the model's accuracy, or a model and scores that the data do not have."""

import re
from dataclasses import dataclass

from service.agents.kpi import normal_form

NEAR = 0.5
_FEATURES = {
    "calls": r"calls?(?: count\w*)?(?: \d+d)?|call (?:count|volume|frequency)|visits?|rep visits?",
    "emails": r"e ?mails?",
    "samples": r"samples?|sampling",
    "speaker_events": r"speaker\w*(?: events?)?",
    "nrx": r"nrx|nbrx|new prescriptions?",
    "trx": r"trx|prescriptions",
    "market_trx": r"market(?: trx| volume| size)",
    "candidates": r"candidates?|eligible patients",
    "conversions": r"conversions",
}
_ACCURACY = (
    r"auc|roc|precision(?: at \d+)?|recall|hit rates?|accura\w+|calibrat\w+|brier|stale|spot on|hot leads?|as good as|still hold\w*|holding"
    r"|relation\w*|perform\w*|conversion model"
)
_ABSENT = (
    (r"churn|lapse|nba|next best action|suggestions?|recomm?endations?|uplift|adherence model", "a model of that kind"),
    (r"scores|score distribution|rankings?", "logged scores of a model"),
)
_STAND_INS = (
    (r"vendor\w*|specialty codes?|coding", "The vendor's feed and codes are not in the data; the columns that come of them are compared."),
    (
        r"launch|go live|day one|built the model|reference|fitted on|trained on|learned from|training data|baseline",
        "No window of training is recorded: the weeks before the recent ones are the reference, and the model is fitted on the 10 before.",
    ),
)


@dataclass(frozen=True, slots=True)
class DriftRequest:
    """`absent` is what the question is about and the data lack; the comparison of recent with earlier weeks stands in for it."""

    features: tuple[str, ...]
    asks_accuracy: bool
    absent: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def nearness(self) -> float:
        """How far the comparison answers the question: 1, or 0.5 where it only stands in."""
        return NEAR if self.absent else 1.0


def read_drift_request(question: str) -> DriftRequest:
    """Return what the question asks about."""
    text = normal_form(question)
    return DriftRequest(
        features=tuple(name for name, pattern in _FEATURES.items() if _found(pattern, text)),
        asks_accuracy=_found(_ACCURACY, text),
        absent=tuple(name for pattern, name in _ABSENT if _found(pattern, text)),
        notes=tuple(note for pattern, note in _STAND_INS if _found(pattern, text)),
    )


def _found(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![^ ])(?:{pattern})(?![^ ])", text) is not None
