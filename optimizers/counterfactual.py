"""What the log's rewards say of a challenger: the student's logged choices with their probabilities, as off-policy estimation wants them.

Only what the student decided counts, and what was rewarded. Without exploration there is nothing to estimate, and the answer says so.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from optimizers.off_policy import Logged, OffPolicy, estimate
from service.routing.student import Reading

LEAST = 100  # rewarded choices


def estimate_challenger(
    observations: pa.Table, serves: Mapping[str, str], readings: Sequence[Reading], chosen: Callable[[int], str]
) -> OffPolicy | None:
    """Estimate the mean reward of a challenger, or None where too little was rewarded.

    Args:
        observations: a dataset's.
        serves: the agent of each intent.
        readings: what the champion reads in each of them.
        chosen: the agent that the challenger would ask for one of them, by its place.
    """
    rows = observations.select(["asked", "intent", "propensity", "alternative", "reward", "chosen", "caller", "lm"]).to_pylist()
    kept = [i for i, row in enumerate(rows) if _is_choice(row)]
    if len(kept) < LEAST:
        return None
    usual, matches, possible, of_logged, of_other = [], [], [], [], []
    for i in kept:
        row, agent, reading = rows[i], chosen(i), readings[i]
        other = serves.get(row["alternative"] or "")
        likeliest = row["asked"] if row["propensity"] >= 0.5 or other is None else other
        matches.append(agent == row["asked"])
        possible.append(agent in (row["asked"], other))
        usual.append(agent == likeliest)
        of_logged.append(_belief(reading, row["asked"], serves))
        of_other.append(_belief(reading, agent, serves))
    log = Logged(
        reward=np.array([rows[i]["reward"] for i in kept]),
        propensity=np.array([rows[i]["propensity"] for i in kept]),
        matches=np.array(matches),
        possible=np.array(possible),
        expected_logged=np.array(of_logged),
        expected_other=np.array(of_other),
    )
    return estimate(log, np.array(usual))


def _is_choice(row: Mapping[str, object]) -> bool:
    told = row["chosen"] or row["caller"] or row["lm"]
    return row["reward"] is not None and row["asked"] is not None and not told


def _belief(reading: Reading, agent: str, serves: Mapping[str, str]) -> float:
    """Return how likely the champion found it that the agent is right."""
    return sum(p for intent, p in reading.probabilities.items() if serves.get(intent) == agent)
