"""The training table of a scope: inputs known before each origin, the target after it, later weeks held out. It knows no dispatch."""

import hashlib
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from service.agents.finding import AgentFailure
from service.agents.sample_data import Counts, Mask, Reals, Snapshot
from service.agents.training.inputs import FLAGS, LABELS, MEASURES
from service.agents.training.population import population_mask
from service.agents.training.scope import TrainingScope

MOST_ORIGINS = 12
LEAST_SPACING = 4
DEFAULT_WEEKS = 52
HISTORIES = (26, 13, 4)
ENOUGH_ORIGINS = 6
FEWEST_ORIGINS = 3
"""One each for training, validation and test."""
HELD_OUT_SHARE = 6
"""One origin in six is the test, and one in six the validation."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One row an HCP and origin. `values` is rows by columns; `split` is train, validation or test, by origin.

    `missing` is the share of each column that was missing before it was repaired, `negative_samples` the HCP-weeks below 0,
    `unknown_targets` the rows dropped because the target could not be known.
    """

    columns: tuple[str, ...]
    values: Reals
    target: Reals
    hcp: Counts
    origin: Counts
    split: NDArray[np.str_]
    origins: tuple[int, ...]
    missing: dict[str, float]
    missing_panel_sizes: int
    negative_samples: int
    sample_cells: int
    unknown_targets: int

    @property
    def id(self) -> str:
        """The hash of the content: the same scope on the same data has the same id."""
        digest = hashlib.sha256("\n".join(self.columns).encode())
        for part in (self.values, self.target, self.hcp, self.origin):
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"ds-{digest.hexdigest()[:16]}"

    def rows(self, *splits: str) -> Mask:
        """Return which rows belong to the splits."""
        return np.isin(self.split, splits)

    def column(self, name: str) -> Reals:
        """Return one column."""
        return self.values[:, self.columns.index(name)]


def choose_history(weeks: int, horizon: int) -> int:
    """Return the longest history that leaves six origins in so many weeks, else three, else the shortest."""
    for least in (ENOUGH_ORIGINS, FEWEST_ORIGINS):
        for history in HISTORIES:
            if len(origins_within(0, weeks, history, horizon)) >= least:
                return history
    return HISTORIES[-1]


def origins_within(start: int, stop: int, history: int, horizon: int) -> tuple[int, ...]:
    """Return the origins in the weeks start to stop, in order: history before each, horizon after it, outcomes that do not overlap."""
    spacing = max(LEAST_SPACING, horizon)
    found = range(stop - horizon, start + history - 1, -spacing)
    return tuple(sorted(found[:MOST_ORIGINS]))


def split_origins(origins: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the origins of train, validation and test: the last ones are the test, those before them the validation."""
    if len(origins) < FEWEST_ORIGINS:
        return {"train": origins[:-1] or origins, "validation": (), "test": origins[-1:] if len(origins) > 1 else ()}
    held = max(1, len(origins) // HELD_OUT_SHARE)
    return {"train": origins[: -2 * held], "validation": origins[-2 * held : -held], "test": origins[-held:]}


def week_range(scope: TrainingScope, data: Snapshot) -> tuple[int, int]:
    """Return the scope's weeks as indices start and stop (exclusive).

    Raises:
        AgentFailure: A week is not in the data (`invalid_input`).
    """
    try:
        return data.week_ends.index(scope.first_week), data.week_ends.index(scope.last_week) + 1
    except ValueError as exc:
        covered = f"{data.week_ends[0].isoformat()} to {data.week_ends[-1].isoformat()}"
        raise AgentFailure("invalid_input", f"The scope's weeks are not weeks of the data, which end on Sundays from {covered}.") from exc


def build_table(scope: TrainingScope, data: Snapshot) -> Table:
    """Build the table of a scope. Nothing after an origin enters its inputs, and the repairs use no outcome.

    Negative samples count as 0; a missing panel size becomes the median of the others in the population.

    Raises:
        AgentFailure: The scope does not fit the data (`invalid_input`).
    """
    mask = population_mask(scope, data)
    start, stop = week_range(scope, data)
    origins = origins_within(start, stop, scope.history_weeks, scope.horizon_weeks)
    static, missing_panels = _static_columns(scope, data, mask)
    columns = (*_summed_inputs(scope), *static, *(name for name in FLAGS if name in scope.inputs))
    blocks, targets, hcps, dropped = [], [], [], 0
    for origin in origins:
        inside = mask & (scope.wanted.at_risk(data, origin, scope.horizon_weeks) if scope.wanted.at_risk else True)
        target = scope.wanted.measure(data, origin, scope.horizon_weeks)
        known = inside & ~np.isnan(target)
        dropped += int(inside.sum() - known.sum())
        rows = np.flatnonzero(known)
        blocks.append(_block(scope, data, origin, rows, static))
        targets.append(target[rows])
        hcps.append(rows)
    samples = data.weekly["samples"][start:stop, mask]
    sizes = [len(rows) for rows in hcps]
    parts = split_origins(origins)
    names = {origin: name for name, members in parts.items() for origin in members}
    return Table(
        columns=columns,
        values=np.vstack(blocks) if blocks else np.empty((0, len(columns))),
        target=np.concatenate(targets) if targets else np.empty(0),
        hcp=np.concatenate(hcps).astype(np.int64) if hcps else np.empty(0, dtype=np.int64),
        origin=np.repeat(np.array(origins, dtype=np.int64), sizes),
        split=np.repeat(np.array([names[origin] for origin in origins], dtype=np.str_), sizes),
        origins=origins,
        missing={name: missing_panels / max(int(mask.sum()), 1) if name == "panel_size" else 0.0 for name in columns},
        missing_panel_sizes=missing_panels,
        negative_samples=int((samples < 0).sum()),
        sample_cells=int(samples.size),
        unknown_targets=dropped,
    )


def dataset_of(table: Table, scope: TrainingScope, data: Snapshot) -> dict[str, object]:
    """Return what the later agents and a reader need to know of the table."""
    parts = split_origins(table.origins)
    shares = {name: table.target[rows] for name in parts if (rows := table.rows(name)).any()}
    return {
        "id": table.id,
        "rows": len(table.target),
        "hcps": len(np.unique(table.hcp)),
        "features": list(table.columns),
        "window": {"first_week": scope.first_week.isoformat(), "last_week": scope.last_week.isoformat()},
        "history_weeks": scope.history_weeks,
        "horizon_weeks": scope.horizon_weeks,
        "split": {
            name: {"origins": [_last_seen(data, origin).isoformat() for origin in members], "rows": int(table.rows(name).sum())}
            for name, members in parts.items()
        },
        "target_mean": {name: float(values.mean()) for name, values in shares.items()},
        "repairs": {"negative_samples_set_to_0": table.negative_samples, "missing_panel_sizes_set_to_median": table.missing_panel_sizes},
    }


def _last_seen(data: Snapshot, origin: int) -> date:
    """Return the end of the last week that the inputs at an origin have seen."""
    return data.week_ends[origin - 1]


def _summed_inputs(scope: TrainingScope) -> tuple[str, ...]:
    return tuple(
        name for name in scope.inputs if name.rsplit("_", 1)[0] in MEASURES and int(name.rsplit("_", 1)[1][:-1]) <= scope.history_weeks
    )


def _static_columns(scope: TrainingScope, data: Snapshot, mask: Mask) -> tuple[dict[str, Reals], int]:
    """Return the columns that do not move with the weeks, over all HCPs, and how many panel sizes were missing in the population."""
    found: dict[str, Reals] = {}
    missing = 0
    for name in scope.inputs:
        if name == "panel_size":
            raw = data.column(name)
            missing = int(np.isnan(raw[mask]).sum())
            found[name] = np.where(np.isnan(raw), np.nanmedian(raw[mask]), raw)
        elif name == "academic":
            found[name] = (data.labels("setting") == "academic").astype(np.float64)
        elif name in LABELS:
            values = np.unique(data.labels(name)[mask])
            found |= {f"{name}={value}": (data.labels(name) == value).astype(np.float64) for value in values[1:]}
        elif name in {"decile", "potential", "digital_affinity"}:
            found[name] = data.column(name)
    return found, missing


def _block(scope: TrainingScope, data: Snapshot, origin: int, rows: Counts, static: dict[str, Reals]) -> Reals:
    """Return the rows of one origin. A programme counts only from its first week on, as a reader of that day would have known it."""
    columns: list[Reals] = []
    for name in _summed_inputs(scope):
        measure, weeks = name.rsplit("_", 1)
        columns.append(np.maximum(data.weekly[measure][origin - int(weeks[:-1]) : origin, rows], 0).sum(axis=0).astype(np.float64))
    columns += [values[rows] for values in static.values()]
    running = float(origin >= data.programme_start)
    columns += [data.column(name)[rows] * running for name in FLAGS if name in scope.inputs]
    return np.column_stack(columns) if columns else np.empty((len(rows), 0))
