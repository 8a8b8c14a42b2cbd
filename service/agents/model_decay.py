"""Does a conversion model that was fitted a while ago still hold? Observed against expected conversions, overall and by group."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from service.agents.sample_data import PROGRAMMES, Mask, Reals, Snapshot
from service.agents.stability import adjust_p_values

Window = tuple[int, int]
ALERT = 0.01


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """Conversions of one group in the recent weeks: observed, expected by the model, and how unusual the difference is."""

    group: str
    observed: int
    expected: float
    z: float
    adjusted_p: float


@dataclass(frozen=True, slots=True)
class Decay:
    """The model's Brier score, AUC and hit rate a patient before and now, and the groups, the most unusual first.

    The hit rate is the share of converted patients among those of the tenth of the HCPs with the highest chance.
    """

    brier_before: float
    brier_recent: float
    auc_before: float
    auc_recent: float
    hit_rate_before: float
    hit_rate_recent: float
    groups: tuple[GroupCheck, ...]

    @property
    def decayed(self) -> tuple[GroupCheck, ...]:
        """The groups whose difference is too wide for chance."""
        return tuple(group for group in self.groups if group.adjusted_p < ALERT)


def measure_decay(data: Snapshot, mask: Mask, fit: Window, before: Window, recent: Window) -> Decay:
    """Fit on the weeks `fit`, then compare the weeks `before` and `recent`.

    The variance of observed less expected is raised by the share that the fit's own noise adds (recent weeks / fitted weeks).
    """
    features = _features(data, mask)
    converted, open_ = _patients(data, mask, fit)
    rows = np.vstack([features, features])
    target = np.repeat([1, 0], len(features))
    weight = np.concatenate([converted, open_])
    model = LogisticRegression(max_iter=300).fit(rows[weight > 0], target[weight > 0], sample_weight=weight[weight > 0])
    chance = model.predict_proba(features)[:, 1]
    inflation = 1.0 + (recent[1] - recent[0]) / (fit[1] - fit[0])
    now, still_open = _patients(data, mask, recent)
    checks = [_check(name, chance[group], now[group], still_open[group], inflation) for name, group in _groups(data, mask)]
    adjusted = adjust_p_values(np.array([2.0 * norm.sf(abs(z)) for _, _, _, z in checks]))
    groups = [GroupCheck(name, observed, expected, z, float(p)) for (name, observed, expected, z), p in zip(checks, adjusted, strict=True)]
    return Decay(
        brier_before=_brier(chance, *_patients(data, mask, before)),
        brier_recent=_brier(chance, now, still_open),
        auc_before=_auc(chance, *_patients(data, mask, before)),
        auc_recent=_auc(chance, now, still_open),
        hit_rate_before=_hit_rate(chance, *_patients(data, mask, before)),
        hit_rate_recent=_hit_rate(chance, now, still_open),
        groups=tuple(sorted(groups, key=lambda one: one.adjusted_p)),
    )


def _check(name: str, chance: Reals, converted: Reals, open_: Reals, inflation: float) -> tuple[str, int, float, float]:
    candidates = converted + open_
    expected = float((candidates * chance).sum())
    variance = float((candidates * chance * (1.0 - chance)).sum()) * inflation
    return name, int(converted.sum()), expected, (float(converted.sum()) - expected) / max(variance, 1e-9) ** 0.5


def _groups(data: Snapshot, mask: Mask) -> list[tuple[str, Mask]]:
    brand, region = data.labels("brand")[mask], data.labels("region")[mask]
    groups = [(f"{one} in the {place}", (brand == one) & (region == place)) for one in np.unique(brand) for place in np.unique(region)]
    everyone = [("all HCPs together", np.ones(int(mask.sum()), dtype=bool))]
    return everyone + [(name, group) for name, group in groups if group.any()] if len(groups) > 1 else everyone


def _patients(data: Snapshot, mask: Mask, window: Window) -> tuple[Reals, Reals]:
    converted = data.weekly["conversions"][window[0] : window[1], mask].sum(axis=0).astype(np.float64)
    candidates = data.weekly["candidates"][window[0] : window[1], mask].sum(axis=0)
    return converted, candidates - converted


def _brier(chance: Reals, converted: Reals, open_: Reals) -> float:
    return float((converted * (1.0 - chance) ** 2 + open_ * chance**2).sum() / max((converted + open_).sum(), 1.0))


def _auc(chance: Reals, converted: Reals, open_: Reals) -> float:
    """Return the chance that a converted patient's HCP had the higher probability, over patients; NaN where all or none converted."""
    if not converted.sum() or not open_.sum():
        return float("nan")
    truth, score = np.repeat([1, 0], len(chance)), np.concatenate([chance, chance])
    return float(roc_auc_score(truth, score, sample_weight=np.concatenate([converted, open_])))


def _hit_rate(chance: Reals, converted: Reals, open_: Reals) -> float:
    best = np.argsort(-chance, kind="stable")[: max(1, len(chance) // 10)]
    return float(converted[best].sum() / max(1.0, float((converted + open_)[best].sum())))


def _features(data: Snapshot, mask: Mask) -> Reals:
    columns = [data.column("decile")[mask] / 10.0, np.log(data.column("potential")[mask]), data.column("digital_affinity")[mask]]
    columns += [data.column(name)[mask] for name in PROGRAMMES]
    columns += [(data.labels("brand")[mask] == name).astype(np.float64) for name in np.unique(data.labels("brand")[mask])[1:]]
    return np.column_stack(columns)
