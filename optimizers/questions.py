"""The questions that programs are optimized on: requests as the LM would be asked them, with the shortlist of a student without them.

An LM is asked only what the student is unsure of, so a program is made better at that: the requests below the policy's threshold, and
where those are few the least sure ones. What a request's own writer or session wrote is neither in its shortlist nor among its examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizers.dataset import Row
from optimizers.student import Fit
from service.catalog.model import Catalog
from service.contracts.lm import LMQuestion
from service.routing.entities import Gazetteer
from service.routing.lm_question import EXAMPLES, ask_about
from service.routing.policy import Policy, Step
from service.routing.student import Example, Reading, Student

LOOKED_AT = 400  # nearest examples among which those of other writers are found


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what is right."""

    question: LMQuestion
    intent: str
    agent: str


def ask_held_out(fitted: Fit, policy: Policy, catalog: Catalog, *, most: int, seed: int) -> list[Asked]:
    """Return at most `most` questions about the rows of a fit that the student was not sure of, each text once, at random."""
    probabilities, oos_scores = fitted.student.calibrate(fitted.held_out)
    best = probabilities.max(axis=1)
    home = np.full(len(fitted.rows), -1, np.int64)
    for number, fold in enumerate(fitted.folds):
        home[fold] = number
    first = {row.key: i for i, row in reversed(list(enumerate(fitted.rows)))}
    usable = [
        i
        for i, row in enumerate(fitted.rows)
        if row.label in catalog.intent and first[row.key] == i and oos_scores[i] <= policy.refuse_above
    ]
    likeliest = probabilities.argmax(axis=1)
    unsure = [i for i in usable if best[i] < policy.act_from(fitted.student.labels[likeliest[i]])]
    if len(unsure) < most:
        unsure = sorted(usable, key=lambda i: best[i])[:most]
    chosen = np.random.default_rng(seed).permutation(unsure)[:most].tolist()
    student, labels = fitted.student, np.array(fitted.student.labels)
    encodings = student.encoder.encode_many([fitted.rows[i].text for i in chosen])
    place = {(row.text, row.label): home[i] for i, row in enumerate(fitted.rows)}
    asked = []
    gazetteer = Gazetteer(catalog)
    for i, encoding in zip(chosen, encodings, strict=True):
        near = student.nearest(encoding.vector, LOOKED_AT)
        others = [e for e in near if place.get((e.text, e.label)) != home[i] and e.text != fitted.rows[i].text]
        order = np.argsort(-probabilities[i], kind="stable")[: policy.shortlist]
        asked.append(_ask(fitted.rows[i], labels[order].tolist(), others[:EXAMPLES], catalog, gazetteer))
    return asked


def ask_unseen(rows: Sequence[Row], student: Student, policy: Policy, catalog: Catalog) -> list[Asked]:
    """Return questions about all in-scope rows, which nothing was fitted on."""
    rows = [row for row in rows if row.label in catalog.intent]
    readings = student.read_all(student.encoder.encode_many([row.text for row in rows]))
    gazetteer = Gazetteer(catalog)
    return [
        _ask(row, list(reading.probabilities)[: policy.shortlist], student.nearest(reading.vector, EXAMPLES), catalog, gazetteer)
        for row, reading in zip(rows, readings, strict=True)
    ]


def ask_texts(
    texts: Sequence[str], readings: Sequence[Reading], student: Student, policy: Policy, catalog: Catalog
) -> dict[int, LMQuestion]:
    """Return the questions that a service would put to the LM about some of the texts that the student has read, by place."""
    gazetteer, asked = Gazetteer(catalog), {}
    for place, (text, reading) in enumerate(zip(texts, readings, strict=True)):
        if would_ask(reading, policy):
            near = student.nearest(reading.vector, EXAMPLES)
            asked[place] = _question(text, list(reading.probabilities)[: policy.shortlist], near, catalog, gazetteer)
    return asked


def would_ask(reading: Reading, policy: Policy) -> bool:
    """Say whether the policy would put a text that reads so to an LM, if one may decide."""
    likeliest, probability = next(iter(reading.probabilities.items()))
    return policy.step(likeliest, probability, reading.oos_score, lm_ready=True) is Step.ASK_LM


def _ask(row: Row, shortlist: Sequence[str], examples: Sequence[Example], catalog: Catalog, gazetteer: Gazetteer) -> Asked:
    question = _question(row.text, shortlist, examples, catalog, gazetteer)
    return Asked(question, row.label, catalog.intent[row.label].primary_agent)


def _question(text: str, shortlist: Sequence[str], examples: Sequence[Example], catalog: Catalog, gazetteer: Gazetteer) -> LMQuestion:
    return ask_about(text, shortlist, examples, catalog, router_version="", programs={}, entities=gazetteer.extract(text))
