"""The effect of a programme on HCPs, by DoWhy: identification, linear adjustment, and two refutations. It knows no dispatch."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pandas as pd
from dowhy import CausalModel
from dowhy.causal_estimator import CausalEstimate
from sklearn.linear_model import LogisticRegression

from service.agents.kpi import Kpi
from service.agents.sample_data import Mask, Snapshot

SEED = 7
"""Handed to DoWhy as `random_state`: its `random_seed` would seed the whole process, and threads would disturb each other."""
PRE_PERIOD_WEEKS = 52


@dataclass(frozen=True, slots=True)
class Effect:
    """An adjusted effect with its 95 % interval, beside the plain difference of the two groups."""

    value: float
    low: float
    high: float
    p_value: float
    naive: float
    naive_low: float
    naive_high: float
    size: int
    treated: int

    @property
    def standard_error(self) -> float:
        """The standard error of the adjusted effect."""
        return self.half_width / 1.96

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2.0


@dataclass(frozen=True, slots=True)
class Refutation:
    """What DoWhy's two refuters found, from `simulations` runs each: a permuted treatment, and an added random common cause."""

    effect: Effect
    placebo_effect: float
    placebo_p_value: float
    common_cause_effect: float
    simulations: int

    @property
    def passed(self) -> bool:
        """Whether the estimate stands.

        The placebo passes when 0 is not an unusual value among its effects (p of 0.05 and more) or its mean effect is under
        half a standard error. The common cause passes when it moves the estimate by less than one standard error.
        """
        error = self.effect.standard_error
        placebo_passes = self.placebo_p_value >= 0.05 or abs(self.placebo_effect) < 0.5 * error
        return placebo_passes and abs(self.common_cause_effect - self.effect.value) < error


class Study:
    """One programme, one outcome, one group of HCPs."""

    def __init__(self, frame: pd.DataFrame) -> None:
        """Keep the frame: columns `treatment`, `outcome`, and the common causes."""
        causes = [name for name in frame.columns if name not in {"treatment", "outcome"}]
        self.frame = frame
        self.causes = causes
        graph = nx.DiGraph([("treatment", "outcome"), *((cause, effect) for cause in causes for effect in ("treatment", "outcome"))])
        self._model = CausalModel(frame, treatment="treatment", outcome="outcome", graph=graph)
        self._estimand = self._model.identify_effect(proceed_when_unidentifiable=True, method_name="maximal-adjustment")
        self._estimate: CausalEstimate = self._model.estimate_effect(self._estimand, method_name="backdoor.linear_regression")

    def effect(self) -> Effect:
        """Return the adjusted effect."""
        low, high = np.asarray(self._estimate.get_confidence_intervals(confidence_level=0.95), dtype=np.float64).ravel()[:2]
        p_value = np.asarray(self._estimate.test_stat_significance()["p_value"], dtype=np.float64).ravel()[0]
        treatment = self.frame["treatment"].to_numpy() == 1
        outcome = self.frame["outcome"].to_numpy()
        with_it, without = outcome[treatment], outcome[~treatment]
        naive = float(with_it.mean() - without.mean())
        error = float(np.sqrt(with_it.var(ddof=1) / len(with_it) + without.var(ddof=1) / len(without)))
        return Effect(
            value=float(self._estimate.value),
            low=float(low),
            high=float(high),
            p_value=float(p_value),
            naive=naive,
            naive_low=naive - 1.96 * error,
            naive_high=naive + 1.96 * error,
            size=len(outcome),
            treated=int(treatment.sum()),
        )

    def refute(self, effect: Effect, simulations: int) -> Refutation:
        """Return what the two refuters find in `simulations` runs each."""
        placebo = self._model.refute_estimate(
            self._estimand,
            self._estimate,
            method_name="placebo_treatment_refuter",
            placebo_type="permute",
            num_simulations=simulations,
            random_state=SEED,
        )
        common = self._model.refute_estimate(
            self._estimand, self._estimate, method_name="random_common_cause", num_simulations=simulations, random_state=SEED
        )
        return Refutation(
            effect=effect,
            placebo_effect=float(placebo.new_effect),
            placebo_p_value=float((placebo.refutation_result or {}).get("p_value", np.nan)),
            common_cause_effect=float(common.new_effect),
            simulations=simulations,
        )

    def overlap(self) -> float:
        """Return the share of HCPs whose chance of treatment, given the common causes, lies between 5 and 95 %."""
        causes = self.frame[self.causes].to_numpy()
        scaled = (causes - causes.mean(axis=0)) / np.maximum(causes.std(axis=0), 1e-9)
        chance = LogisticRegression(max_iter=200).fit(scaled, self.frame["treatment"]).predict_proba(scaled)[:, 1]
        return float(np.mean((chance > 0.05) & (chance < 0.95)))


def study_frame(data: Snapshot, mask: Mask, programme: str, kpi: Kpi) -> pd.DataFrame:
    """Return one row an HCP: treatment, outcome since the programme's start, and what came before it.

    HCPs without an outcome (a ratio with no denominator) are left out.
    """
    start = data.programme_start
    columns = {
        "treatment": data.column(programme),
        "outcome": kpi.per_hcp(data, start, data.weeks),
        "outcome_before": kpi.per_hcp(data, start - PRE_PERIOD_WEEKS, start),
        "decile": data.column("decile"),
        "potential": data.column("potential"),
        "digital_affinity": data.column("digital_affinity"),
        "is_academic": (data.labels("setting") == "academic").astype(np.float64),
    }
    for name, group in (("region", data.labels("region")), ("brand", data.labels("brand"))):
        present = sorted(set(group[mask].tolist()))
        columns |= {f"{name}_{level}": (group == level).astype(np.float64) for level in present[1:]}
    frame = pd.DataFrame(columns)[mask]
    whole: pd.DataFrame = frame[np.isfinite(frame.to_numpy()).all(axis=1)]
    return whole.reset_index(drop=True)
