"""The trial in which champion and challenger are compared: golden requests, or what users said of requests that neither was fitted on.

A logged request's right agent is known where somebody corrected the choice, where the user chose, and, taken for granted, where the chosen
agent succeeded. Where it failed and nobody said more, it is not known; so each corrected failure stands for the others too, as many as
there are of each (inverse probability weighting), and so does a corrected refusal: else a challenger would be blamed for every success that
it loses, and praised for one in ten of the failures that it mends. What the success of a wrong agent hides speaks for the champion: the
court errs on that side. On the log it is the choice that is compared and not the refusal, because what was refused has hardly an outcome.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizers.court import Comparison, Tried
from optimizers.dataset import Row
from optimizers.label_model import FAILED, SUCCEEDED
from optimizers.paired import compare, compare_slices
from service.routing.encoder import Encoding
from service.routing.policy import Policy, Step
from service.routing.student import OUT_OF_SCOPE, Student

NOBODY = ""  # the right answer to what is out of scope
UNHAPPY = 1  # a rating of at most two stars, less one
MOST_WEIGHT = 20.0  # of one request


@dataclass(frozen=True, slots=True)
class Trial:
    """Requests, the agent that is right for each, and how many requests each stands for, shape (n,)."""

    texts: tuple[str, ...]
    right: tuple[str, ...]
    weight: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.texts)

    def without(self, seen: Container[str]) -> "Trial":
        """Return the trial without texts of these keys (`Row.key`)."""
        kept = [i for i, text in enumerate(self.texts) if Row(text, "").key not in seen]
        return Trial(tuple(self.texts[i] for i in kept), tuple(self.right[i] for i in kept), self.weight[kept])


def golden_trial(rows: Sequence[Row], serves: Mapping[str, str]) -> Trial:
    """Return labelled requests as a trial; of equal texts the first."""
    first = {row.key: row for row in reversed(rows)}
    kept = [row for row in rows if first[row.key] is row]
    return Trial(
        tuple(row.text for row in kept),
        tuple(NOBODY if row.label == OUT_OF_SCOPE else serves[row.label] for row in kept),
        np.ones(len(kept)),
    )


def logged_trial(observations: pa.Table, serves: Mapping[str, str]) -> Trial:
    """Return the logged requests whose right agent is known or taken for granted, each text once; what somebody said goes first."""
    found: dict[str, _Truth] = {}
    failures = corrected = 0
    for row in observations.select(["text", "asked", "outcome", "rating", "again", "corrected", "chosen"]).to_pylist():
        said = row["corrected"] or serves.get(row["chosen"] or "")
        failed = row["outcome"] == FAILED or row["again"] == 1 or 0 <= row["rating"] <= UNHAPPY
        failures += failed
        corrected += failed and said is not None
        right = said or (row["asked"] if row["outcome"] == SUCCEEDED and not failed else None)
        key = Row(row["text"], "").key
        if right is not None and (key not in found or (said is not None and not found[key].said)):
            found[key] = _Truth(row["text"], right, said is not None, stands_for_others=failed or row["asked"] is None)
    stands_for = min(MOST_WEIGHT, failures / corrected) if corrected else 1.0
    return Trial(
        tuple(truth.text for truth in found.values()),
        tuple(truth.right for truth in found.values()),
        np.array([stands_for if truth.stands_for_others else 1.0 for truth in found.values()]),
    )


@dataclass(frozen=True, slots=True)
class _Truth:
    text: str
    right: str
    said: bool
    stands_for_others: bool


def hold(
    trial: Trial, champion: Sequence[str], challenger: Sequence[str], at_once: tuple[Sequence[bool], Sequence[bool]] | None = None
) -> Comparison:
    """Compare the agents that both choose for the requests of a trial; the slices are the right agents.

    `at_once` says where each of the two would carry its choice out without asking the user back, where that is known.
    """
    right = np.array(trial.right, object)
    old, new = ((np.array(chosen, object) == right).astype(bool) for chosen in (champion, challenger))
    slices = [agent or "out of scope" for agent in trial.right]
    tried = [Tried(*each) for each in zip(trial.texts, trial.right, champion, challenger, strict=True)]
    reached = compare(old & np.array(at_once[0]), new & np.array(at_once[1]), trial.weight) if at_once is not None else None
    return Comparison(compare(old, new, trial.weight), compare_slices(old, new, slices, trial.weight), tried, reached)


@dataclass(frozen=True, slots=True)
class Routing:
    """A router version as far as it routes by itself."""

    student: Student
    policy: Policy
    serves: Mapping[str, str]

    def choices(self, encodings: Sequence[Encoding]) -> list[str]:
        """Return the agent that it would choose for each encoded text, if it had to."""
        return [self.serves.get(next(iter(reading.probabilities)), NOBODY) for reading in self.student.read_all(encodings)]

    def agents(self, encodings: Sequence[Encoding]) -> list[str]:
        """Return the agent that it would send each encoded text to, if it could not ask; nobody, where it would refuse."""
        refused = [reading.oos_score > self.policy.refuse_above for reading in self.student.read_all(encodings)]
        return [NOBODY if no else chosen for no, chosen in zip(refused, self.choices(encodings), strict=True)]

    def at_once(self, encodings: Sequence[Encoding]) -> list[bool]:
        """Say for each encoded text whether it would call an agent or refuse, and not ask the user back, where no LM can help."""
        best = [(*next(iter(reading.probabilities.items())), reading.oos_score) for reading in self.student.read_all(encodings)]
        return [self.policy.step(*one, lm_ready=False) is not Step.CLARIFY for one in best]
