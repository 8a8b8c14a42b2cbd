"""The dataset of a training run: observations and labelled requests, split so that no text and no session sits in two splits, hashed.

A session's split follows from its name, so it never changes: what was a test is never trained on later. A text belongs to the split of the
session that said it first; another session's observation of it is left out where that is of another split. The sessions that began last are
validation: what is chosen on them was not there when the rest was learned. Labelled requests are for training; a golden set lies apart.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from optimizers.dataset import Row, hash_rows
from optimizers.observations import SCHEMA, Observed
from optimizers.scrub import Scrubber
from service.contracts.model import JsonObject

TRAIN, VALIDATION, TEST = 0, 1, 2
SPLITS = ("train", "validation", "test")
TEST_SHARE = 0.15  # of the sessions
VALIDATION_SHARE = 0.10  # of the others, those that began last
DATASET = "dataset"  # the folder of a run's artifacts that holds it
OBSERVATIONS, LABELLED, MANIFEST = "observations.parquet", "labelled.parquet", "manifest.json"
_WHOLE = 2**64

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Snapshot:
    """A dataset.

    Attributes:
        observations: the columns of `optimizers.observations.SCHEMA`, and `split`; oldest first.
        labelled: requests with a label, for training.
        left_out: signals that were not used, by reason.
        replaced: personal data that were taken out of texts.
    """

    observations: pa.Table
    labelled: tuple[Row, ...]
    left_out: Mapping[str, int]
    replaced: int

    def of(self, *splits: int) -> pa.Table:
        """Return the observations of some splits."""
        return self.observations.filter(pc.is_in(self.observations["split"], pa.array(splits, pa.int8())))

    @property
    def witnessed(self) -> pa.Table:
        """The observations of what happened here: evidence, where what others said they saw is none."""
        return self.observations.filter(pc.invert(self.observations["received"]))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything in it, whatever the order of the rows."""
        digest = hashlib.sha256(hash_rows(self.labelled).encode())
        for line in sorted(_lines(self.observations)):
            digest.update(line)
        return digest.hexdigest()

    def manifest(self) -> JsonObject:
        """Return what the dataset is, in numbers; no text of it."""
        splits = Counter(self.observations["split"].to_pylist())
        at = self.observations["at"]
        first, last = (value.as_py() for value in pc.min_max(at).values()) if len(at) else (None, None)
        return {
            "sha256": self.digest,
            "observations": {name: splits.get(code, 0) for code, name in enumerate(SPLITS)},
            "texts": {name: len(pc.unique(self.of(code)["text"])) for code, name in enumerate(SPLITS)},
            "sessions": len(pc.unique(self.observations["session"])),
            "labelled": len(self.labelled),
            "labelled_sha256": hash_rows(self.labelled),
            "from": _written(first),
            "to": _written(last),
            "left_out": dict(sorted(self.left_out.items())),
            "personal_data_replaced": self.replaced,
            "router_versions": sorted(v for v in pc.unique(self.observations["router_version"]).to_pylist() if v is not None),
        }

    def write(self, folder: Path) -> JsonObject:
        """Write the dataset into a folder, the manifest last, and return the manifest."""
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.observations, folder / OBSERVATIONS, compression="zstd")
        rows = {
            "text": [r.text for r in self.labelled],
            "label": [r.label for r in self.labelled],
            "writer": [r.writer for r in self.labelled],
        }
        pq.write_table(pa.table(rows), folder / LABELLED, compression="zstd")
        manifest = self.manifest()
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False))
        return manifest


def labelled_only(rows: Sequence[Row]) -> Snapshot:
    """Return a dataset without any observations."""
    return Snapshot(SCHEMA.empty_table().append_column("split", pa.array([], pa.int8())), tuple(rows), {}, 0)


def read_fitted_on(folder: Path) -> tuple[list[Row], frozenset[str]]:
    """Return the labelled requests of a dataset that `Snapshot.write` wrote, and the keys of the observed texts that were for fitting."""
    labelled = [Row(row["text"], row["label"], row["writer"]) for row in pq.read_table(folder / LABELLED).to_pylist()]
    observed = pq.read_table(folder / OBSERVATIONS, columns=["text", "split"])
    fitted_on = observed.filter(pc.not_equal(observed["split"], pa.scalar(TEST, pa.int8())))
    return labelled, frozenset(Row(text, "").key for text in pc.unique(fitted_on["text"]).to_pylist())


def keys_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the keys (`Row.key`) of texts as they are, and as the log shows them: without personal data."""
    plain = list(texts)
    clean = Scrubber().each(plain, [()] * len(plain))
    return frozenset(Row(text, "").key for text in (*plain, *clean))


def build_snapshot(observed: Iterable[Observed], labelled: Sequence[Row], held_back: Collection[str], scrub: Scrubber) -> Snapshot:
    """Join what was observed into a dataset.

    Args:
        observed: of `optimizers.observations.observe`.
        labelled: requests with a label.
        held_back: keys (`Row.key`) of texts that are for testing only and must not be learned from.
        scrub: what their texts were scrubbed with.
    """
    left_out: Counter[str] = Counter()
    tables = []
    for batch in observed:
        left_out += batch.left_out
        tables.append(batch.rows)
    table = pa.Table.from_batches(tables, schema=SCHEMA).sort_by("at")
    keys, numbers = _keys(table["text"])
    told = keys_of(row.text for row in labelled)
    reasons = (
        np.array([1 if key in held_back else 2 if key in told else 0 for key in keys], np.int8)[numbers] if keys else np.zeros(0, np.int8)
    )
    split, repeated = assign(numbers, table["session"].to_numpy(), table["at"].cast(pa.int64()).to_numpy())
    left_out["a golden request"] += int((reasons == 1).sum())
    left_out["labelled already"] += int((reasons == 2).sum())
    left_out["said first in another split"] += int((repeated & (reasons == 0)).sum())
    kept = (reasons == 0) & ~repeated
    table = table.append_column("split", pa.array(split, pa.int8())).filter(pa.array(kept))
    return Snapshot(table, tuple(labelled), {reason: n for reason, n in left_out.items() if n}, scrub.replaced)


def assign(
    text: npt.NDArray[np.int64], session: npt.NDArray[np.uint64], at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return the split of each observation, and whether it has to be left out because its text was said first in another split.

    Args:
        text: number of the text of each observation.
        session: number of its session, evenly spread over 64 bits.
        at: when it was, in any unit; oldest first.
    """
    split = np.zeros(len(text), np.int8)
    split[session < np.uint64(int(TEST_SHARE * _WHOLE))] = TEST
    others = split != TEST
    sessions, first = np.unique(session[others], return_index=True)
    began = at[others][first]
    last = sessions[np.lexsort((sessions, began))][len(sessions) - int(VALIDATION_SHARE * len(sessions)) :]
    split[others & np.isin(session, last)] = VALIDATION
    texts, first_said = np.unique(text, return_index=True)
    home = np.zeros(int(texts.max(initial=-1)) + 1, np.int8)
    home[texts] = split[first_said]
    return split, split != home[text]


def _keys(texts: pa.ChunkedArray) -> tuple[list[str], Indices]:
    """Return the different texts by what makes texts equal, and the number of each row's."""
    numbers: dict[str, int] = {}
    encoded = pa.array(texts.combine_chunks() if texts.num_chunks else [], pa.string()).dictionary_encode()
    of_text = np.array([numbers.setdefault(Row(text, "").key, len(numbers)) for text in encoded.dictionary.to_pylist()], np.int64)
    return list(numbers), of_text[encoded.indices.to_numpy()]


def _lines(table: pa.Table) -> Iterator[bytes]:
    for batch in table.to_batches(max_chunksize=50_000):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield repr(row).encode()


def _written(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
