"""HCPs sorted by how they respond: persuadables, sure things, lost causes, sleeping dogs. Only as far as held-out data bear it out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.agents.chart import Row
from service.agents.sample_data import Snapshot
from service.agents.subgroups.model import Signals, Study, measure_group
from service.agents.subgroups.ranking import QUARTERS, Ranking

CLASSES = ("persuadables", "sure_things", "lost_causes", "sleeping_dogs")


@dataclass(frozen=True, slots=True)
class Sorting:
    """How many HCPs are in each class, and what the quarters of predicted effect have in common."""

    ranking: Ranking
    classes: Mapping[str, int]
    profile: tuple[Row, ...]


def sort_hcps(data: Snapshot, study: Study, signals: Signals, ranking: Ranking) -> Sorting:
    """Return the classes and the profile.

    A quarter whose measured effect is clearly above 0 holds persuadables, clearly below 0 sleeping dogs. In the others nobody
    responds measurably: those that wrote at least the median of all before are sure things, the rest lost causes. Where the
    ranking is not real there is one quarter only: all HCPs.
    """
    if ranking.is_real:
        bounds = [(one.low, one.high) for one in ranking.quarters]
    else:
        overall = measure_group(study, signals, np.ones(len(study.rows), dtype=bool), "overall")
        bounds = [(overall.low, overall.high)] * QUARTERS
    before = study.causes[:, 0]
    writes = before >= np.median(before)
    counts = dict.fromkeys(CLASSES, 0)
    for rank, (low, high) in enumerate(bounds):
        member = ranking.quarter_of == rank
        if low > 0:
            counts["persuadables"] += int(member.sum())
        elif high < 0:
            counts["sleeping_dogs"] += int(member.sum())
        else:
            counts["sure_things"] += int((member & writes).sum())
            counts["lost_causes"] += int((member & ~writes).sum())
    return Sorting(ranking, counts, tuple(_profile(data, study, ranking, rank) for rank in range(QUARTERS)))


def _profile(data: Snapshot, study: Study, ranking: Ranking, rank: int) -> Row:
    """Return what the HCPs of one quarter are like (the paper's classification analysis)."""
    rows = study.rows[ranking.quarter_of == rank]
    region, specialty, brand = (data.labels(name)[rows] for name in ("region", "specialty", "brand"))
    return {
        "quarter": rank + 1,
        "hcps": len(rows),
        "share_academic": float((data.labels("setting")[rows] == "academic").mean()),
        "mean_decile": float(data.column("decile")[rows].mean()),
        "mean_digital_affinity": float(data.column("digital_affinity")[rows].mean()),
        "mean_outcome_before": float(study.causes[ranking.quarter_of == rank, 0].mean()),
        "most_frequent_region": _most_frequent(region),
        "most_frequent_specialty": _most_frequent(specialty),
        "most_frequent_brand": _most_frequent(brand),
    }


def _most_frequent(labels: np.ndarray[tuple[int, ...], np.dtype[np.str_]]) -> str:
    names, counts = np.unique(labels, return_counts=True)
    return f"{names[counts.argmax()]} ({100 * counts.max() / len(labels):.0f} %)"
