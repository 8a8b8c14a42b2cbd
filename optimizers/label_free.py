"""Learn the numbers that weigh evidence for any label alike, on public dialogues: what history and descriptions say.

    python -m optimizers.label_free --dialogues train.jsonl.gz --services train_services.json \
        --others FILE... --answers datasets/replies/train.jsonl --out label_free.json

Dialogues are those of Schema-Guided Dialogue (Rastogi et al. 2020), one row a turn of the user; `--others` are labelled requests that stand
alone. The dialogues are split: on some rows students are fitted, on others the numbers, and the rest is measured. To be label-free, the
numbers are fitted on two catalogues of services, about half of them without an example, and on two students each: one of all turns, and
one of turns that stand alone, as in a product. A belief that the numbers themselves formed is training input (Ross et al. 2011, DAgger).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from optimizers.dataset import Row, read_rows
from optimizers.dialogues import Cache, Choices, Read, Spoken, describe, read_dialogues
from optimizers.replies import learn_replies, read_answers
from optimizers.student import fit
from service.routing.descriptions import features
from service.routing.encoder import Encoder
from service.routing.history import EVIDENCE, WEIGHTS, History
from service.routing.label_free import FILE, LabelFree
from service.routing.student import Student

CATALOGUES = (  # one or two services a domain; those after the bar have no examples
    "Buses_1 Events_1 Homes_1 Hotels_1 Media_1 Music_1 RentalCars_1 RideSharing_1 Travel_1 Weather_1"
    " | Banks_1 Calendar_1 Flights_1 Hotels_2 Movies_1 Restaurants_1 Services_1",
    "Flights_2 Hotels_1 Banks_1 Calendar_1 Movies_1 Restaurants_1 Services_2 Music_2"
    " | Events_2 Hotels_3 RentalCars_2 RideSharing_2 Buses_2 Homes_1 Media_1 Travel_1 Weather_1",
)
LEARN, MEASURE = 1_100, 800  # dialogues; the rest is for the students
EXAMPLES = 16_000  # turns that the students are fitted on
OTHERS = 12_000
ROUNDS = 3

console = Console(highlight=False, soft_wrap=True)

Weights = npt.NDArray[np.float64]


def fit_choice(blocks: Sequence[Choices], penalty: float) -> Weights:
    """Fit a conditional logit with an L2 penalty on the weights of features scaled to unit size."""
    centred = np.concatenate([(b.features - b.features.mean(1, keepdims=True)).reshape(-1, b.features.shape[2]) for b in blocks])
    scale = np.sqrt((centred**2).mean(axis=0)) + 1e-6
    scaled = [(b.features / scale.astype(np.float32), b.target, b.weight) for b in blocks]
    total = sum(b.weight.sum() for b in blocks)

    def loss(weights: Weights) -> tuple[float, Weights]:
        value, slope = 0.0, np.zeros(len(weights))
        for x, target, weight in scaled:
            rows = np.arange(len(target))
            logs = log_softmax(x @ weights.astype(np.float32), axis=1)
            value -= float((weight * logs[rows, target]).sum())
            error = np.exp(logs)
            error[rows, target] -= 1.0
            slope += np.tensordot(error * weight[:, None].astype(np.float32), x, ((0, 1), (0, 1)))
        return value / total + penalty * float(weights @ weights), slope / total + 2.0 * penalty * weights

    found = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.asarray(found.x / scale, np.float64)


def learn_dependence(dialogues: Sequence[Sequence[Spoken]], others: Sequence[str], vectors: Cache) -> tuple[Weights, float]:
    """Fit the logistic regression of "depends on what was said before": turns that stay with a label, against texts that stand alone."""
    turns = [t for d in dialogues for t in d]
    stays = list(dict.fromkeys(t.text for t in turns if not t.stands_alone))
    changes = list(dict.fromkeys(t.text for t in turns if t.before and t.stands_alone))
    firsts = list(dict.fromkeys(t.text for t in turns if not t.before))
    parts = ((stays, 1.0), (changes, 0.2), (firsts, 0.4), (list(others), 0.4))
    weight = np.concatenate([np.full(len(texts), share / len(texts)) for texts, share in parts])
    found = np.stack([e.vector for texts, _ in parts for e in vectors(texts)])
    model = LogisticRegression(C=0.1, max_iter=500)
    model.fit(found, np.arange(len(found)) < len(stays), sample_weight=weight * len(found))
    return model.coef_[0].astype(np.float64), float(model.intercept_[0])


def main() -> None:
    """Learn, measure, write."""
    parser = argparse.ArgumentParser(description="Learn what history and descriptions say about any label.")
    parser.add_argument("--dialogues", type=Path, required=True)
    parser.add_argument("--services", type=Path, required=True)
    parser.add_argument("--others", type=Path, nargs="+", required=True, help="labelled requests that stand alone")
    parser.add_argument("--answers", type=Path, required=True, help="short answers, each with what it does")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    random, vectors = np.random.default_rng(7), Cache(Encoder(threads=2))
    everything = read_dialogues(given.dialogues)
    services = {s["service"]: s for s in json.loads(given.services.read_text(encoding="utf-8"))}
    names = sorted(everything)
    random.shuffle(names)
    learn, measure, rest = ([everything[n] for n in part] for part in np.split(np.array(names), [LEARN, LEARN + MEASURE]))
    turns = [t for d in rest for t in d]
    turns = [turns[i] for i in random.permutation(len(turns))[:EXAMPLES]]
    others = [row for path in given.others for row in read_rows(path)]
    others = [others[i] for i in random.permutation(len(others))[:OTHERS]]

    console.print("learning which texts depend on what was said before")
    # the sample of turns has no whole dialogues, but each knows the label before it
    depends, shift = learn_dependence([*learn, turns], [row.text for row in others], vectors)
    console.print("learning what short answers do")
    reply, reply_shift = learn_replies(read_answers(given.answers), others, [t.text for t in turns], vectors)
    console.print("fitting students")
    students = [
        _student(catalogue, [t for t in turns if kept or t.stands_alone], services, vectors.encoder)
        for kept in (True, False)
        for catalogue in CATALOGUES
    ]
    console.print("learning what descriptions say")
    blank = LabelFree(
        vectors.encoder.name, np.zeros((len(WEIGHTS), len(EVIDENCE))), depends, shift, reply, reply_shift, (0.0,) * 5, (1.0, 0.0)
    )
    reads = [Read(_widened(s, c, services, blank), learn, vectors, History(blank)) for s, c in zip(students, CATALOGUES * 2, strict=True)]
    join = fit_choice([r.described(alone=i >= len(CATALOGUES)) for i, r in enumerate(reads)], 1e-4)
    blank = replace(blank, join=tuple(join))
    scope = learn_scope([_widened(s, c, services, blank) for s, c in zip(students, CATALOGUES * 2, strict=True)], learn, vectors, join)
    blank = replace(blank, scope=scope)
    widened = [_widened(s, c, services, blank) for s, c in zip(students, CATALOGUES * 2, strict=True)]
    console.print("learning what history says")
    reads = [Read(s, learn, vectors, History(blank)) for s in widened]
    learned = replace(blank, move=learn_moves(reads, blank))
    write(learned, given.out)
    for kind, some in (("all turns", widened[:2]), ("turns that stand alone", widened[2:])):
        console.print(f"students of {kind}, measured on {MEASURE} more dialogues:")
        report([Read(s, measure, vectors, History(learned)) for s in some], History(learned))


def learn_moves(reads: Sequence[Read], blank: LabelFree) -> Weights:
    """Fit the weights of the filter step: on known labels first, then on its own beliefs too."""
    shape = blank.move.shape
    moves = fit_choice([r.examples(r.known(), 1.0) for r in reads], 1e-3).reshape(shape)
    for _ in range(ROUNDS):
        own = History(replace(blank, move=moves))
        blocks = [
            block
            for r in reads
            for block in (
                r.examples(r.window(own), 1.0),
                r.examples(r.known(), 0.5),
                r.examples(r.window(own, silent=True), 0.5, silent=True),
            )
        ]
        moves = fit_choice(blocks, 1e-3).reshape(shape)
    return moves


def learn_scope(students: Sequence[Student], dialogues: Sequence[Sequence[Spoken]], vectors: Cache, join: Weights) -> tuple[float, float]:
    """Fit the log-odds that no new label fits: on turns of new labels, with and without the labels of their domain in the catalogue."""
    fits, without = list[Weights](), list[Weights]()
    for student in students:
        count = len(student.practised)
        new = list(student.labels[count:])
        turns = [t for d in dialogues for t in d if t.stands_alone and t.label in new]
        scores = student.score(vectors([t.text for t in turns]))
        if scores.described is None:
            raise ValueError("The student knows no descriptions.")
        found = (features(scores.values[:, student.inside], scores.described) @ join)[:, count:]
        alike = np.array([[label.split("_")[0] == t.label.split("_")[0] for label in new] for t in turns])
        fits.append(found.max(axis=1))
        without.append(np.where(alike, -np.inf, found).max(axis=1))
    evidence_of = np.concatenate([*fits, *without])
    model = LogisticRegression().fit(evidence_of[:, None], np.arange(len(evidence_of)) >= len(evidence_of) // 2)
    return -float(model.coef_[0, 0]), float(model.intercept_[0])


def write(learned: LabelFree, path: Path) -> None:
    """Write the numbers with as many digits as they are worth."""
    content = {
        "encoder": learned.encoder,
        "move": np.round(learned.move, 4).tolist(),
        "depends": np.round(learned.depends, 4).tolist(),
        "depends_shift": round(learned.depends_shift, 4),
        "reply": np.round(learned.reply, 3).tolist(),
        "reply_shift": np.round(learned.reply_shift, 4).tolist(),
        "join": np.round(learned.join, 4).tolist(),
        "scope": np.round(learned.scope, 4).tolist(),
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    path.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def report(reads: Sequence[Read], history: History) -> None:
    """Print accuracy by kind of turn: of repeating the label before, of the text alone, with history, and with the label before known."""
    beliefs = {
        "label before repeated": [r.known() for r in reads],
        "text alone": [r.heard.text for r in reads],
        "text and history": [r.final(history, r.window(history)) for r in reads],
        "label before known": [r.final(history, r.known()) for r in reads],
    }
    kinds = {
        "all": np.concatenate([np.ones(len(r.turns), bool) for r in reads]),
        "first": np.concatenate([r.parent < 0 for r in reads]),
        "after": np.concatenate([r.parent >= 0 for r in reads]),
        "change": np.concatenate([r.change for r in reads]),
        "new label": np.concatenate([r.new for r in reads]),
    }
    for name, found in beliefs.items():
        right = np.concatenate([(b > b[np.arange(len(b)), r.target][:, None]).sum(axis=1) for b, r in zip(found, reads, strict=True)])
        if name == "label before repeated":
            right[kinds["first"]] = len(right)  # there is nothing to repeat
        shares = "  ".join(f"{kind} {100 * (right[rows] == 0).mean():.1f}" for kind, rows in kinds.items())
        console.print(f"  {name:22} {shares}  new label in the top 3 {100 * (right[kinds['new label']] < 3).mean():.1f}")


def _widened(student: Student, catalogue: str, services: dict[str, dict[str, Any]], learned: LabelFree) -> Student:
    return student.knowing({name: describe(services[name]) for name in catalogue.split() if name != "|"}, learned)


def _student(catalogue: str, turns: Sequence[Spoken], services: dict[str, dict[str, Any]], encoder: Encoder) -> Student:
    names = catalogue.split("|")[0].split()
    return fit(
        [Row(t.text, t.label) for t in turns if t.label in names],
        encoder,
        descriptions={name: services[name]["description"] for name in names},
    ).student


if __name__ == "__main__":
    main()
