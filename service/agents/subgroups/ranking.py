"""Is a ranking of HCPs by predicted effect real? A DR-learner judged on HCPs that it has not seen. It knows no dispatch.

Method: Chernozhukov, Demirer, Duflo and Fernández-Val (2018), "Generic machine learning inference on heterogeneous treatment
effects". In each of many random halves one half fits the model of the effect (DR-learner, Kennedy 2023), the other half measures
whether the prediction holds (best linear predictor), the effect in each quarter of the prediction, and the Qini coefficient.
Medians over the halves are reported; intervals and p-values pay for that (97.5 % intervals in each half, p-values doubled).
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import RidgeCV

from service.agents.sample_data import Reals, Snapshot
from service.agents.subgroups.model import Study, halve, score

SEED = 23
MOST_SPLITS = 10
FEWEST_SPLITS = 2
QUARTERS = 4
PENALTIES = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
_HALF_WIDTH = float(norm.ppf(1.0 - 0.025 / 2.0))


@dataclass(frozen=True, slots=True)
class Quarter:
    """The measured effect in one quarter of the HCPs by predicted effect; 0 is the quarter with the smallest prediction."""

    rank: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What the held-out halves say, and each HCP's quarter by the mean of the predictions of models that had not seen it."""

    slope: float
    p_value: float
    qini: float
    qini_p_value: float
    quarters: tuple[Quarter, ...]
    quarter_of: Reals
    splits: int

    @property
    def is_real(self) -> bool:
        """Whether predictions and effects go together on unseen HCPs (p below 5 %)."""
        return self.slope > 0 and self.p_value < 0.05


def rank_by_effect(data: Snapshot, study: Study, splits: int = MOST_SPLITS) -> Ranking:
    """Return the ranking and its held-out check from `splits` random halves, each used both ways."""
    rng = np.random.default_rng(SEED)
    traits = describe_hcps(data, study)
    total, seen = np.zeros(len(study.rows)), np.zeros(len(study.rows))
    checks = []
    for _ in range(splits):
        half = halve(study, rng)
        for fitted, judged in ((half, ~half), (~half, half)):
            effect, _, _ = score(study, fitted, fitted | judged)
            model = RidgeCV(alphas=PENALTIES).fit(traits[fitted], effect[fitted])
            prediction = np.asarray(model.predict(traits[judged]))
            checks.append(_judge(effect[judged], prediction))
            total[judged] += prediction
            seen[judged] += 1
    median = np.median(np.array(checks), axis=0)
    quarters = tuple(Quarter(rank, *median[4 + 3 * rank : 7 + 3 * rank].tolist()) for rank in range(QUARTERS))
    return Ranking(
        slope=float(median[0]),
        p_value=float(min(1.0, 2.0 * median[1])),
        qini=float(median[2]),
        qini_p_value=float(min(1.0, 2.0 * median[3])),
        quarters=quarters,
        quarter_of=_quarters_of(total / np.maximum(seen, 1)),
        splits=splits,
    )


def describe_hcps(data: Snapshot, study: Study) -> Reals:
    """Return the traits by which an effect may differ: HCPs by columns, each with mean 0 and spread 1."""
    rows = study.rows
    brand, setting = data.labels("brand")[rows], (data.labels("setting")[rows] == "academic").astype(np.float64)
    region, specialty = data.labels("region")[rows], data.labels("specialty")[rows]
    columns = [setting, *(data.column(name)[rows] for name in ("decile", "potential", "digital_affinity")), study.causes[:, 0]]
    columns += [(region == one).astype(np.float64) for one in sorted(set(region.tolist()))[1:]]
    columns += [(specialty == one).astype(np.float64) for one in sorted(set(specialty.tolist()))[1:]]
    brands = sorted(set(brand.tolist()))
    if len(brands) > 1:
        columns += [(brand == one) * setting for one in brands]
    traits = np.column_stack(columns)
    return np.asarray((traits - traits.mean(axis=0)) / np.maximum(traits.std(axis=0), 1e-9))


def _judge(effect: Reals, prediction: Reals) -> list[float]:
    """Return slope, its p-value, Qini, its p-value, then effect, low and high of each quarter."""
    centred = prediction - prediction.mean()
    scale = float((centred**2).sum())
    slope = float((centred * effect).sum() / scale) if scale > 1e-12 else 0.0
    residual = effect - effect.mean() - slope * centred
    error = float(np.sqrt(((centred * residual) ** 2).sum()) / scale) if scale > 1e-12 else np.inf
    place = np.argsort(np.argsort(-prediction, kind="stable"), kind="stable") / len(prediction)
    gained = (effect - effect.mean()) * (0.5 - place)
    qini = float(gained.mean())
    qini_error = float(gained.std(ddof=1) / np.sqrt(len(gained)))
    found = [slope, float(2.0 * norm.sf(abs(slope) / error)), qini, float(2.0 * norm.sf(abs(qini) / max(qini_error, 1e-12)))]
    quarter = _quarters_of(prediction)
    for rank in range(QUARTERS):
        part = effect[quarter == rank]
        value, half = float(part.mean()), _HALF_WIDTH * float(part.std(ddof=1) / np.sqrt(len(part)))
        found += [value, value - half, value + half]
    return found


def _quarters_of(prediction: Reals) -> Reals:
    place = np.argsort(np.argsort(prediction, kind="stable"), kind="stable")
    return np.floor(place * QUARTERS / len(prediction))
