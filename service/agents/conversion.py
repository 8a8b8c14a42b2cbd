"""How likely an HCP is to have at least one converted patient within 4 weeks: a calibrated scikit-learn model. It knows no dispatch."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from service.agents.sample_data import PROGRAMMES, Reals, Snapshot

HORIZON_WEEKS = 4
HISTORY_WEEKS = 26
ORIGINS = 6
"""Training origins, 4 weeks apart; the 4 weeks after them are held out."""
BINS = 10
RECENT = ("trx", "market_trx", "calls", "emails", "samples", "candidates", "conversions")


@dataclass(frozen=True, slots=True, eq=False)
class ConversionModel:
    """Today's probability for every HCP, and how the same model did on the weeks that it had not seen."""

    probability: Reals
    features: tuple[str, ...]
    values: Reals
    coefficients: Reals
    held_out_probability: Reals
    held_out_outcome: NDArray[np.bool_]
    auc: float
    brier: float
    base_rate_brier: float

    @property
    def calibration_error(self) -> float:
        """The mean distance between predicted and observed share over the tenths."""
        return sum(size * abs(mean - share) for mean, share, size in self.reliability()) / len(self.held_out_outcome)

    def reliability(self) -> list[tuple[float, float, int]]:
        """Return (mean probability, observed share, HCPs) of each tenth of the held-out HCPs, by probability."""
        order = np.argsort(self.held_out_probability)
        return [
            (float(self.held_out_probability[part].mean()), float(self.held_out_outcome[part].mean()), len(part))
            for part in np.array_split(order, BINS)
        ]


@lru_cache(maxsize=2)
def fit_conversion_model(data: Snapshot) -> ConversionModel:
    """Fit on HCPs at earlier weeks, judge on the last 4 weeks, and predict the 4 weeks to come; once for each data set."""
    last = data.weeks - HORIZON_WEEKS
    origins = [last - HORIZON_WEEKS * (back + 1) for back in range(ORIGINS)]
    features = np.vstack([_features(data, origin) for origin in origins])
    outcome = np.concatenate([_outcome(data, origin) for origin in origins])
    group = np.tile(np.arange(len(data.hcps)), ORIGINS)
    folds = list(GroupKFold(3).split(features, outcome, group))
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    model = CalibratedClassifierCV(linear, method="sigmoid", cv=folds).fit(features, outcome)
    coefficients = np.mean([one.estimator[-1].coef_[0] for one in model.calibrated_classifiers_], axis=0)
    held_out = model.predict_proba(_features(data, last))[:, 1]
    seen = _outcome(data, last)
    today = _features(data, data.weeks)
    return ConversionModel(
        probability=model.predict_proba(today)[:, 1],
        features=_feature_names(),
        values=(today - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9),
        coefficients=coefficients,
        held_out_probability=held_out,
        held_out_outcome=seen,
        auc=float(roc_auc_score(seen, held_out)),
        brier=float(np.mean((held_out - seen) ** 2)),
        base_rate_brier=float(np.mean((outcome.mean() - seen) ** 2)),
    )


def _feature_names() -> tuple[str, ...]:
    recent = tuple(f"{name}_last_{HISTORY_WEEKS}_weeks" for name in RECENT)
    return (*recent, "expected_conversions", "decile", "log_potential", "digital_affinity", "is_academic", *PROGRAMMES)


def _features(data: Snapshot, origin: int) -> Reals:
    recent = {name: data.weekly[name][origin - HISTORY_WEEKS : origin].sum(axis=0).astype(np.float64) for name in RECENT}
    smoothed_rate = (recent["conversions"] + 3.0) / (recent["candidates"] + 10.0)
    running = float(origin >= data.programme_start)
    columns = [np.log1p(np.maximum(recent[name], 0.0)) for name in RECENT]
    columns += [
        np.log(recent["candidates"] + 1.0) + np.log(smoothed_rate),
        data.column("decile"),
        np.log(data.column("potential")),
        data.column("digital_affinity"),
        (data.labels("setting") == "academic").astype(np.float64),
        *(data.column(name) * running for name in PROGRAMMES),
    ]
    return np.column_stack(columns)


def _outcome(data: Snapshot, origin: int) -> NDArray[np.bool_]:
    return np.asarray(data.weekly["conversions"][origin : origin + HORIZON_WEEKS].sum(axis=0) > 0)
