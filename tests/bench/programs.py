"""Do the searches make a small LM's program better? `python -m tests.bench.programs --data FOLDER --lm NAME=FILE.gguf ...`.

Worlds: the analytics catalogue (fitted on `datasets/seed`, tested on the golden requests) and CLINC150's 10 domains as agents (fitted on
10 examples an intent, tested on requests of its test split). Every test question is put to the LM, whatever the student thinks of it. Each
search starts from the plain program; none sees a test question. Prints accuracy with intervals, and each search against the plain program
by a paired test, on all test questions and on those that the student is unsure of.
"""

import argparse
import asyncio
import gzip
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dspy
import numpy as np
import numpy.typing as npt
from rich.console import Console

from optimizers.dataset import Row, read_rows
from optimizers.evaluate import Figure
from optimizers.lm_meter import Meter, metered
from optimizers.paired import compare
from optimizers.policy import fit_policy, read_held_out
from optimizers.program_search import TRAINING, VALIDATION, Search, answer_all, find_better
from optimizers.questions import Asked, ask_held_out, ask_unseen, would_ask
from optimizers.response_cache import answers_kept, identify
from optimizers.search_watch import Watch
from optimizers.student import fit
from optimizers.trainee import TASKS, RoutingTrainee, example_of
from service.adapters.lm_client import make_lm
from service.adapters.lm_price import Price
from service.adapters.local_lm import SLOTS, LocalLM
from service.catalog.loader import load_catalog
from service.catalog.model import Catalog
from service.routing.encoder import Encoder
from signatures.instructions import instructions_from
from signatures.inventory import ModelClass
from signatures.prompting import Model, style_for
from tests.bench.learning_world import words, write_catalog
from tests.conftest import ROOT

SEED = 1
ANSWERS = Path("var/bench/programs")
Bools = npt.NDArray[np.bool_]
console = Console(width=200)


@dataclass(frozen=True, slots=True)
class World:
    """A catalogue with what to learn from and what to test on."""

    name: str
    catalog: Catalog
    train: list[Row]
    test: list[Row]
    descriptions: dict[str, str]


def read_analytics() -> World:
    """The shipped catalogue."""
    catalog = load_catalog(None)
    described = {intent.name: intent.description for intent in catalog.intents}
    return World("analytics", catalog, read_rows(ROOT / "datasets/seed"), read_rows(ROOT / "datasets/golden/test.jsonl"), described)


def read_domains(data: Path, tests: int) -> World:
    """CLINC150's domains as agents."""

    def rows(name: str) -> list[dict[str, str]]:
        with gzip.open(data / "clinc150" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    domain = {row["label"]: row["domain"] for row in rows("train")}
    train, test = ([Row(row["text"], domain[row["label"]]) for row in rows(name)] for name in ("train_10shot", "test"))
    seen = {row.key for row in train}
    test = [row for row in test if row.key not in seen]
    chosen = np.random.default_rng(SEED).permutation(len(test))[:tests]
    labels = sorted({row.label for row in train})
    folder = ANSWERS / "domains"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_catalog(folder, labels, 1)
    return World("domains", load_catalog(folder), train, [test[i] for i in chosen], {n: f"Requests about {words(n)}." for n in labels})


async def try_searches(world: World, name: str, gguf: Path, searches: Sequence[str], encoder: Encoder) -> None:
    """Fit the student, ask the plain program, run the searches, and print how each does."""
    fitted = fit(world.train, encoder, descriptions=world.descriptions, seed=SEED)
    policy = fit_policy(read_held_out(fitted))
    asked = ask_held_out(fitted, policy, world.catalog, most=TRAINING + VALIDATION["light"], seed=SEED)
    test = ask_unseen(world.test, fitted.student, policy, world.catalog)
    texts = [one.question.query for one in test]
    readings = fitted.student.read_all(encoder.encode_many(texts))
    unsure = np.array([would_ask(reading, policy) for reading in readings])
    student = np.array([next(iter(r.probabilities)) == one.intent for r, one in zip(readings, test, strict=True)])
    say(f"{world.name}, {name}: {len(asked)} questions to learn from, {len(test)} to test on, {int(unsure.sum())} of them unsure")
    say(f"  student alone      {share(student)}   unsure {share(student[unsure])}")
    local = LocalLM(gguf, threads=os.cpu_count())
    try:
        endpoint = await local.start()
        lm = make_lm(endpoint, retries=2, timeout=120.0)
        with answers_kept(ANSWERS / identify(endpoint.model, str(gguf.stat().st_size))):
            await asyncio.to_thread(
                compare_searches, lm, asked, test, unsure, searches, instructions_from(world.descriptions, world.descriptions)
            )
    finally:
        await local.close()


def compare_searches(
    lm: dspy.LM, asked: Sequence[Asked], test: Sequence[Asked], unsure: Bools, searches: Sequence[str], ready: Mapping[str, str]
) -> None:
    """Run each search from the plain program and compare both on the test questions."""
    task, plain = TASKS["routing"], None
    for search in ("plain", *searches):
        meter, began = Meter(), time.monotonic()
        counted = metered(lm, meter, Price(0.0, 0.0))
        model = Model(counted, style_for(counted.model))
        trainee = RoutingTrainee(task, dict.fromkeys(ModelClass, model), {})
        watch = Watch(meter, lambda _: None, None)
        if search != "plain":
            examples = [example_of(one) for one in asked]
            validation, train = examples[: VALIDATION["light"]], examples[VALIDATION["light"] :]
            wanted = Search(task, train, validation, ready, counted.copy(max_tokens=300), "light", SLOTS, SEED)
            trainee, _ = find_better(search, wanted, trainee, watch)
            scores = [f"{t.score:.2f}{'' if t.full else 'm'}" for t in watch.trials]
            say(f"  {search}: trials {' '.join(scores)}; {meter.spent}")
        searched, minutes = meter.spent.calls, (time.monotonic() - began) / 60
        began = time.monotonic()
        answers = answer_all(trainee, [one.question for one in test], SLOTS)
        right = np.array([a is not None and a.primary_agent == one.agent for a, one in zip(answers, test, strict=True)])
        seconds = (time.monotonic() - began) / max(1, meter.spent.calls - searched)
        line = f"  {search:<10} {share(right)}   unsure {share(right[unsure])}"
        line += f"   {searched} calls, {minutes:.1f} min; {seconds:.2f} s a test call"
        if plain is not None:
            for what, part in (("all", slice(None)), ("unsure", unsure)):
                p = compare(plain[part], right[part], np.ones(len(plain[part])))
                line += f"   {what}: {p.difference:+.1%} ({p.low:+.1%} to {p.high:+.1%}), p better {p.p_better:.3g}"
        say(line)
        plain = right if plain is None else plain
        if search != "plain":
            (ANSWERS / f"{lm.model.replace('/', '-')}-{search}-{len(test)}.json").write_text(json.dumps(trainee.states(), indent=1))


def share(right: Bools) -> str:
    """Return a share with its interval."""
    figure = Figure.share(int(right.sum()), len(right))
    return f"{figure.value:.1%} ({figure.low:.1%} to {figure.high:.1%})"


def say(line: str) -> None:
    """Print a line at once."""
    console.print(line, highlight=False, soft_wrap=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--worlds", default="analytics,domains")
    parser.add_argument("--searches", default="miprov2,bootstrap")
    parser.add_argument("--tests", type=int, default=300, help="requests of CLINC150's test split")
    options = parser.parse_args()
    encoder = Encoder(threads=os.cpu_count() or 1)
    for named in options.lm:
        name, _, file = named.partition("=")
        for world in options.worlds.split(","):
            found = read_analytics() if world == "analytics" else read_domains(options.data, options.tests)
            asyncio.run(try_searches(found, name, Path(file), options.searches.split(","), encoder))


if __name__ == "__main__":
    main()
