"""Logged exploration: where two intents are nearly as likely, the second is carried out now and then, so that the log can tell of both.

Without it nobody ever learns what the second would have brought, and no log can say whether another router is better. The draw follows
from the query's id: the same question posted again gets the same answer. Pure.
"""

import hashlib
from dataclasses import dataclass
from uuid import UUID

NEAR = 0.6  # how likely the second has to be, of the first, to be nearly as likely
_WHOLE = 2**64


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which of two nearly equal intents is carried out, with which probability, and the other one."""

    intent: str
    propensity: float
    alternative: str


def draw(first: tuple[str, float], second: tuple[str, float], share: float, query_id: UUID) -> Drawn | None:
    """Draw between the two likeliest intents, each given with its probability; the second is carried out as often as `share` says.

    None where they are not nearly as likely, or nothing is to be explored.
    """
    if share <= 0.0 or second[1] < NEAR * first[1]:
        return None
    explores = int.from_bytes(hashlib.sha256(query_id.bytes).digest()[:8]) < share * _WHOLE
    if explores:
        return Drawn(second[0], share, first[0])
    return Drawn(first[0], 1.0 - share, second[0])
