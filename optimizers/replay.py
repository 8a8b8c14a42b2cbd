"""Replay: the log's requests through two router versions, so that what differs is the versions and not then and now.

Requests and versions in, `Replay` out. Every different text is read once, in parts; what stays in memory is columns, and the sentence
vectors of texts that flip. It knows no store, no registry and no terminal. Equal texts are no independent observations: intervals count
as many requests as their repetitions are worth (Kish 1965).
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from statsmodels.stats.proportion import proportion_confint

from optimizers.dataset import Row
from optimizers.evaluate import Figure
from optimizers.flip_clusters import REST, group, nearest
from optimizers.flip_risk import ANOTHER, NOBODY, UNKNOWN, Flags, Risk, Truth, weigh
from optimizers.label_model import FAILED, SUCCEEDED
from optimizers.replay_log import Requests
from optimizers.replayed import EXAMPLES, Choice, Cluster, Cost, Logged, Replay
from optimizers.text_router import ACTIONS, ASK_LM, CLARIFY, Choices, TextRouter, encode
from service.catalog.model import Agent, Catalog
from service.routing.encoder import Encoder

READ_AT_ONCE = 1_024  # texts
Scrub = Callable[[str, Iterable[str]], str]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Readings:
    """What both versions make of t texts.

    Attributes:
        old, new: choices, shape (t,).
        right: probability that the choice of the old version (first row) and the new one (second row) is right, by the old version and by
            the new one, shape (2, 2, t).
        fitted_on: whether the new version was fitted on the text, shape (t,).
        flipped: the texts whose choice differs.
        vectors: their sentence vectors, half precision, shape (flipped, d).
    """

    old: Choices
    new: Choices
    right: npt.NDArray[np.float32]
    fitted_on: Flags
    flipped: Numbers
    vectors: npt.NDArray[np.float16]


def replay(
    requests: Requests,
    old: TextRouter,
    new: TextRouter,
    *,
    encoder: Encoder,
    catalog: Catalog,
    seen: Container[str],
    scrub: Scrub,
    progress: Callable[[str], None],
) -> Replay:
    """Read all requests with both versions and compare.

    Args:
        requests: at least one.
        old: the version that is compared with, such as the champion.
        new: the version that is asked about.
        encoder: of both.
        catalog: of both.
        seen: keys (`Row.key`) of the texts that the new version was fitted on.
        scrub: takes personal data out of the texts that are shown.
        progress: is told how far it is.
    """
    read = read_all(requests.texts, old, new, encoder, seen, progress)
    progress("grouping the flips by meaning")
    names = [agent.name for agent in catalog.agents]
    before, after = read.old[requests.text], read.new[requests.text]
    truth = what_is_known(requests, names, {intent.name: intent.primary_agent for intent in catalog.intents})
    pooled = read.right.mean(axis=1)[:, requests.text].astype(float)
    risk = weigh(before, after, truth, pooled[0], pooled[1])
    flips = before != after
    clusters = [describe(*found, requests, read, truth, risk, catalog, scrub) for found in clusters_of(requests, read)]
    fresh = flips & ~read.fitted_on[requests.text]
    return Replay(
        old=old.version,
        new=new.version,
        requests=len(requests),
        found=requests.found,
        texts=len(requests.texts),
        left_out=dict(sorted(requests.left_out.items())),
        flips=share_of(flips, requests.text),
        another_agent=int((flips & (before >= 0) & (after >= 0)).sum()),
        gains=int((risk.gain & flips).sum()),
        losses=int((risk.loss & flips).sum()),
        fresh_gains=int((risk.gain & fresh).sum()),
        fresh_losses=int((risk.loss & fresh).sum()),
        fitted_on=share_of(read.fitted_on[requests.text], requests.text),
        mended=float(risk.mended[flips].sum()),
        broken=float(risk.broken[flips].sum()),
        asked_lm=(share_of(before == ASK_LM, requests.text), share_of(after == ASK_LM, requests.text)),
        asked_user=(share_of(before == CLARIFY, requests.text), share_of(after == CLARIFY, requests.text)),
        costs=(_cost(before, catalog, requests.latency_ms), _cost(after, catalog, requests.latency_ms)),
        logged=compare_with_log(requests, before, after, names),
        clusters=tuple(sorted(clusters, key=lambda one: (-one.broken, -one.requests, one.source, one.target))),
    )


def read_all(
    texts: pa.LargeStringArray,
    old: TextRouter,
    new: TextRouter,
    encoder: Encoder,
    seen: Container[str],
    progress: Callable[[str], None],
    *,
    at_once: int = READ_AT_ONCE,
) -> Readings:
    """Read every text with both versions, a part at a time."""
    count = len(texts)
    choices, right = np.empty((2, count), np.int64), np.empty((2, 2, count), np.float32)
    fitted_on, vectors = np.zeros(count, bool), list[npt.NDArray[np.float16]]()
    for start in range(0, count, at_once):
        part = slice(start, min(start + at_once, count))
        some: list[str] = texts[part].to_pylist()
        encoded = encode(some, encoder)
        decided = [version.decide(encoded) for version in (old, new)]
        choices[:, part] = [one.choice for one in decided]
        right[:, :, part] = [[by.right(one.choice) for by in decided] for one in decided]
        fitted_on[part] = [Row(text, "").key in seen for text in some]
        vectors += [encoded[i].encoding.vector.astype(np.float16) for i in np.flatnonzero(decided[0].choice != decided[1].choice)]
        progress(f"{part.stop:,} of {count:,} texts read")
    flipped = np.flatnonzero(choices[0] != choices[1])
    return Readings(choices[0], choices[1], right, fitted_on, flipped, np.stack(vectors) if vectors else np.zeros((0, 1), np.float16))


def what_is_known(requests: Requests, names: Sequence[str], serves: Mapping[str, str]) -> Truth:
    """Return what the log tells of who was right: for a text what was said most often, or else for a request what came of it."""
    number = {name: i for i, name in enumerate(names)}
    votes: dict[int, Counter[int]] = {}
    corrected = requests.columns["corrected"]
    for row in np.flatnonzero(corrected.is_valid().to_numpy()).tolist():
        votes.setdefault(int(requests.text[row]), Counter())[number.get(corrected[row].as_py(), ANOTHER)] += 1
    places = pc.index_in(requests.choices["text"], value_set=requests.texts).to_pylist()
    for text, intent in zip(places, requests.choices["intent"].to_pylist(), strict=True):
        if text is not None and intent in serves:
            votes.setdefault(text, Counter())[number[serves[intent]]] += 1
    said_of = np.full(len(requests.texts), UNKNOWN, np.int64)
    for text, counted in votes.items():
        (first, most), *others = counted.most_common(2)
        if not others or others[0][1] < most:
            said_of[text] = first
    said, asked = said_of[requests.text], logged_choices(requests, names)
    outcome = requests.columns["outcome"].to_numpy()
    right = np.where(said != UNKNOWN, said, np.where((outcome == SUCCEEDED) & (asked != NOBODY), asked, UNKNOWN))
    wrong = np.where((right == UNKNOWN) & (outcome == FAILED) & (asked != NOBODY), asked, UNKNOWN)
    return Truth(right, wrong, said != UNKNOWN)


def logged_choices(requests: Requests, names: Sequence[str]) -> Choices:
    """Return the agent that was asked then for each request, `NOBODY` or `ANOTHER`."""
    asked = requests.columns["agent"]
    places = pc.index_in(asked, value_set=pa.array(names, asked.type)).fill_null(ANOTHER).to_numpy().astype(np.int64)
    return np.where(asked.is_valid().to_numpy(), places, NOBODY)


def clusters_of(requests: Requests, read: Readings) -> Iterator[tuple[Numbers, Numbers, bool]]:
    """Yield the rows of each cluster of flips, its texts with the most typical first, and whether they are of no group.

    Flips are parted by their choices, and within those by meaning.
    """
    order = np.argsort(requests.text, kind="stable")
    starts = np.searchsorted(requests.text[order], np.arange(len(requests.texts) + 1))
    pairs = np.stack([read.old[read.flipped], read.new[read.flipped]], axis=1)
    for pair in np.unique(pairs, axis=0):
        of_pair = np.flatnonzero((pairs == pair).all(axis=1))
        vectors = read.vectors[of_pair].astype(np.float32)
        groups = group(vectors)
        for one in np.unique(groups).tolist():
            members = np.flatnonzero(groups == one)
            texts = read.flipped[of_pair[members]][nearest(vectors[members])]
            yield np.concatenate([order[starts[text] : starts[text + 1]] for text in texts]), texts, one == REST


def describe(
    rows: Numbers,
    texts: Numbers,
    mixed: bool,
    requests: Requests,
    read: Readings,
    truth: Truth,
    risk: Risk,
    catalog: Catalog,
    scrub: Scrub,
) -> Cluster:
    """Return what there is to say of a cluster: its rows, and its texts with the most typical first."""
    choices = [int(of[texts[0]]) for of in (read.old, read.new)]
    before, after = (catalog.agents[choice] if choice >= 0 else None for choice in choices)
    wrong = (1.0 - read.right[:, :, requests.text[rows]].astype(float)).sum(axis=2).tolist()
    return Cluster(
        source=Choice(ACTIONS[choices[0]]) if before is None else Choice("dispatch", before.name),
        target=Choice(ACTIONS[choices[1]]) if after is None else Choice("dispatch", after.name),
        mixed=mixed,
        requests=len(rows),
        texts=len(texts),
        examples=tuple(_examples(texts, requests, scrub)),
        gains=int(risk.gain[rows].sum()),
        losses=int(risk.loss[rows].sum()),
        even=int(risk.even[rows].sum()),
        said=int(truth.said[rows].sum()),
        fitted_on=int(read.fitted_on[requests.text[rows]].sum()),
        mended=float(risk.mended[rows].sum()),
        broken=float(risk.broken[rows].sum()),
        expected_errors=((wrong[0][0], wrong[1][0]), (wrong[0][1], wrong[1][1])),
        latency_ms=(_latency(before, requests), _latency(after, requests)),
        timeout_ms=(before.timeout_ms if before else None, after.timeout_ms if after else None),
    )


def _latency(agent: Agent | None, requests: Requests) -> float | None:
    return requests.latency_ms.get(agent.name) if agent is not None else None


def _examples(texts: Numbers, requests: Requests, scrub: Scrub) -> Iterator[str]:
    """Yield the first few texts without personal data; those that are equal then are shown once."""
    shown = set[str]()
    for text in texts.tolist():
        clean = scrub(requests.texts[text].as_py(), requests.writers(text))
        key = Row(clean, "").key
        if key not in shown:
            shown.add(key)
            yield clean
        if len(shown) == EXAMPLES:
            return


def share_of(flags: Flags, text: Numbers) -> Figure:
    """Return the share of requests with its 95 % Wilson interval, for as many as their texts' repetitions are worth."""
    repeated = np.bincount(text)
    worth = len(text) ** 2 / float((repeated.astype(float) ** 2).sum())
    share = float(flags.mean())
    low, high = proportion_confint(share * worth, worth, method="wilson")
    return Figure(share, max(0.0, float(low)), min(1.0, float(high)), len(text))


def compare_with_log(requests: Requests, old: Choices, new: Choices, names: Sequence[str]) -> tuple[Logged, ...]:
    """Compare both versions with what was decided then, by who decided; those that decided most come first."""
    asked = logged_choices(requests, names)
    versions, rungs = (pc.dictionary_encode(requests.columns[name].fill_null("none").combine_chunks()) for name in ("version", "rung"))
    of_version, of_rung = versions.indices.to_numpy(), rungs.indices.to_numpy()
    found = []
    for i, j in sorted(map(tuple, np.unique(np.stack([of_version, of_rung], axis=1), axis=0).tolist())):
        rows = (of_version == i) & (of_rung == j)
        alike = [_alike(asked[rows], chosen[rows]) for chosen in (old, new)]
        undecided = [int((chosen[rows] == ASK_LM).sum()) for chosen in (old, new)]
        version, rung = versions.dictionary[i].as_py() or "none", rungs.dictionary[j].as_py()
        found.append(Logged(version, rung, int(rows.sum()), alike[0], alike[1], undecided[0], undecided[1]))
    return tuple(sorted(found, key=lambda one: (-one.requests, one.version, one.rung)))


def _alike(asked: Choices, chosen: Choices) -> int:
    """Count where the same agent is asked, or nobody; what an LM would choose is not known."""
    return int(np.where(asked == NOBODY, (chosen < 0) & (chosen != ASK_LM), asked == chosen).sum())


def _cost(chosen: Choices, catalog: Catalog, latency_ms: Mapping[str, float]) -> Cost:
    agents = chosen[chosen >= 0]
    observed = np.array([latency_ms.get(agent.name, np.nan) for agent in catalog.agents])[agents]
    timeouts = np.array([float(agent.timeout_ms) for agent in catalog.agents])[agents]
    told = ~np.isnan(observed)
    return Cost(
        dispatched=len(agents),
        latency_ms=float(observed[told].mean()) if told.any() else None,
        latency_told=int(told.sum()),
        timeout_ms=float(timeouts.mean()) if len(agents) else None,
    )
