"""Numbers that weigh evidence for any label alike, learned once on public dialogues and packaged: see `optimizers/label_free.py`."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).parent / "data" / "label_free.json"

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelFree:
    """The learned numbers.

    Attributes:
        encoder: name of the encoder whose vectors `depends` reads.
        move: what each evidence for a label weighs by kind of weight, shape (weights, evidences); see `history.evidence`.
        depends: direction of the sentence vector along which a text depends on what was said before, shape (d,).
        depends_shift: the log-odds of that at the origin.
        reply: weight of each kind of reply in the order of `replies.KINDS`, shape (kinds, d).
    reply_shift: their log-odds at the origin, shape (kinds,).
    join: weights of score, best and mean cosine similarity, overlap and being new; see `descriptions.weigh`.
        scope: slope and shift of the log-odds that no new label fits.
    """

    encoder: str
    move: Matrix
    depends: Matrix
    depends_shift: float
    reply: Matrix
    reply_shift: Matrix
    join: tuple[float, ...]
    scope: tuple[float, float]


@lru_cache(maxsize=1)
def packaged() -> LabelFree:
    """Return the numbers that come with the package."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    slope, shift = content["scope"]
    return LabelFree(
        content["encoder"],
        np.array(content["move"]),
        np.array(content["depends"]),
        content["depends_shift"],
        np.array(content["reply"]),
        np.array(content["reply_shift"]),
        tuple(content["join"]),
        (slope, shift),
    )
