"""Does the court fool itself? `python -m tests.bench.court --data FOLDER`: challengers that are no better, and some that are.

The champion is a student fitted on CLINC150's 5-shot split, its intents the agents. Each hearing draws 1,000 of the test split as its
trial. 200 challengers are no better: 50 the same but for the seed of the fit, 50 noisier (a twentieth of their choices drawn at random), 50
the best of 50 random changes on 300 items that play validation, 50 a point worse. 100 are three points better and differ on a tenth.
"""

import argparse
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.table import Table

from optimizers.court import judge_integrity, judge_off_policy, judge_test, rule
from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.ruling import Rules, Ruling
from optimizers.student import fit
from optimizers.trial import Routing, Trial, hold
from service.routing.encoder import Encoder
from service.routing.policy import Policy
from service.terminal import terminal

EACH, TRIED, BETTER = 50, 1_000, 100
OPEN = Policy(refuse_above=1.0, act_above=1.01, clarify_below=0.5, accepted_in_scope=1.0, risk_target=0.02, coverage=0.0)

Names = npt.NDArray[np.object_]
console = terminal()


def main() -> None:
    """Read the data, hold the hearings, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds clinc150/")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, encoder = np.random.default_rng(given.seed), Encoder(None, threads=2)
    train, test = (_read(given.data, name) for name in ("train_5shot", "test"))
    labels = sorted({row.label for row in train})
    serves = {label: label for label in labels}
    encodings = encoder.encode_many([row.text for row in test])
    champion = np.array(Routing(fit(train, encoder, seed=1).student, OPEN, serves).choices(encodings), object)
    refits = [np.array(Routing(fit(train, encoder, seed=seed).student, OPEN, serves).choices(encodings), object) for seed in (2, 3, 4)]
    right = np.array([row.label for row in test], object)
    world = World(champion, right, np.array(labels, object), rng)
    console.print(f"champion: {(champion == right).mean():.4f} of {len(test)} test items", highlight=False)
    kinds: dict[str, tuple[int, Callable[[int], Names]]] = {
        "the same, fitted anew": (EACH, lambda number: refits[number % len(refits)]),
        "noisier": (EACH, lambda _: world.noisier(0.05)),
        "overfitted to validation": (EACH, lambda _: world.overfitted(changes=50, items=300)),
        "a point worse": (EACH, lambda _: world.changed(gains=0.02, losses=0.03)),
        "three points better": (BETTER, lambda _: world.changed(gains=0.065, losses=0.035)),
    }
    table = Table(title=f"{TRIED} items a hearing, the rules that are the default", title_justify="left")
    for heading in ("challengers", "promoted", "of", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "challengers" else "right")
    no_better = 0
    for name, (count, make) in kinds.items():
        promoted = sum(world.promotes(make(number), [row.text for row in test]) for number in range(count))
        no_better += promoted if count == EACH else 0
        share = Figure.share(promoted, count)
        table.add_row(name, str(promoted), str(count), f"{share.low:.1%} to {share.high:.1%}")
    console.print(table)
    console.print(f"no better: {no_better} of {4 * EACH} promoted (target: at most {4 * EACH // 20})", highlight=False)


class World:
    """A champion's choices on the test split, and challengers made of them."""

    def __init__(self, champion: Names, right: Names, labels: Names, rng: np.random.Generator) -> None:
        self._champion, self._right, self._labels, self._rng = champion, right, labels, rng

    def promotes(self, challenger: Names, texts: Sequence[str]) -> bool:
        """Hold a hearing on a trial of its own, and say whether the challenger is promoted."""
        drawn = self._rng.choice(len(texts), TRIED, replace=False)
        trial = Trial(tuple(texts[i] for i in drawn), tuple(self._right[drawn]), np.ones(TRIED))
        compared = hold(trial, list(self._champion[drawn]), list(challenger[drawn]))
        rules = Rules()
        ruling, _ = rule([judge_integrity([]), judge_test(compared, rules), judge_off_policy(None)], rules)
        return ruling is Ruling.PROMOTE

    def noisier(self, share: float) -> Names:
        """Return the champion's choices, some of them drawn at random."""
        noisy = self._rng.random(len(self._champion)) < share
        return np.where(noisy, self._rng.choice(self._labels, len(self._champion)), self._champion)

    def overfitted(self, *, changes: int, items: int) -> Names:
        """Return the best of some random changes on some items that play validation; the truth of the others had no part in it."""
        tried = [self.changed(gains=0.03, losses=0.03) for _ in range(changes)]
        chosen_on = self._rng.choice(len(self._champion), items, replace=False)
        best = max(tried, key=lambda one: (one[chosen_on] == self._right[chosen_on]).mean())
        fresh = self.changed(gains=0.03, losses=0.03)  # what it does elsewhere is as random as before
        best = np.where(np.isin(np.arange(len(best)), chosen_on), best, fresh)
        return best

    def changed(self, *, gains: float, losses: float) -> Names:
        """Return the champion's choices with some of its errors mended and some of its right choices spoiled, as shares of all items."""
        correct = self._champion == self._right
        mended = ~correct & (self._rng.random(len(correct)) < gains / max(1e-9, float((~correct).mean())))
        spoiled = correct & (self._rng.random(len(correct)) < losses / float(correct.mean()))
        return np.where(mended, self._right, np.where(spoiled, self._rng.choice(self._labels, len(correct)), self._champion))


def _read(data: Path, name: str) -> list[Row]:
    with gzip.open(data / "clinc150" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [Row(row["text"], row["label"]) for row in map(json.loads, lines)]


if __name__ == "__main__":
    main()
