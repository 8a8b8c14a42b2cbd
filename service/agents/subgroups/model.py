"""What a programme does to each HCP, as doubly robust signals, and what their means say of subgroups. It knows no dispatch.

The signal of an HCP is the score of augmented inverse probability weighting (Robins, Rotnitzky and Zhao 1994). Its mean over a
group is the group's average effect, adjusted for who was chosen, right where either the outcome or the chance of being chosen is
modelled right (Semenova and Chernozhukov 2021). The models are cross-fitted: no HCP is judged by a model that has seen it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from sklearn.linear_model import LogisticRegression

from service.agents.kpi import Kpi
from service.agents.sample_data import Counts, Mask, Reals, Snapshot

SEED = 17
FOLDS = 5
PRE_PERIOD_WEEKS = 52
LEAST_CHANCE = 0.05
"""A chance of treatment nearer to 0 or 1 is moved here, so that no single HCP carries a group's effect."""
DRAWS = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """HCPs of one scope (arrays of one value an HCP; `rows` are their rows in the data) before a model is fitted.

    `causes` has the adjustment set of `causal_impact`: the outcome in the 52 weeks before, decile, potential, digital affinity,
    setting, region and brand. Where there are several brands, each has its own slope of the outcome before and of potential.
    """

    rows: Counts
    treated: Mask
    outcome: Reals
    causes: Reals


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """Doubly robust signals: `effect` and `untreated` average to the effect and to the outcome without the programme."""

    effect: Reals
    untreated: Reals
    chance: Reals

    @property
    def overlap(self) -> float:
        """The share of HCPs whose chance of treatment lies between 5 and 95 %."""
        return float(np.mean((self.chance > 0.05) & (self.chance < 0.95)))


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """The adjusted effect in one group, per HCP in the outcome's unit, and the mean outcome that the group would have without."""

    group: str
    value: float
    standard_error: float
    size: int
    treated: int
    untreated_mean: float

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.value - 1.96 * self.standard_error

    @property
    def high(self) -> float:
        """The upper end of the 95 % interval."""
        return self.value + 1.96 * self.standard_error

    @property
    def p_value(self) -> float:
        """The p-value of no effect, two-sided."""
        return float(2.0 * norm.sf(abs(self.value) / max(self.standard_error, 1e-12)))

    @property
    def relative(self) -> float:
        """The effect as a part of the mean outcome without the programme; NaN where that is not above 0."""
        return self.value / self.untreated_mean if self.untreated_mean > 0 else float("nan")


@dataclass(frozen=True, slots=True)
class Heterogeneity:
    """Cochran's Q test of one effect in all groups, and I squared: the share of the spread that chance does not explain."""

    statistic: float
    degrees: int
    p_value: float
    i_squared: float


def build_study(data: Snapshot, mask: Mask, programme: str, kpi: Kpi) -> Study:
    """Return the study of the HCPs in `mask`, without those that have no outcome (a ratio with no denominator)."""
    start = data.programme_start
    outcome = kpi.per_hcp(data, start, data.weeks)
    before = kpi.per_hcp(data, start - PRE_PERIOD_WEEKS, start)
    potential, brand, region = data.column("potential"), data.labels("brand"), data.labels("region")
    columns = [
        before,
        data.column("decile"),
        potential,
        data.column("digital_affinity"),
        (data.labels("setting") == "academic").astype(np.float64),
    ]
    columns += [(region == one).astype(np.float64) for one in sorted(set(region[mask].tolist()))[1:]]
    for one in sorted(set(brand[mask].tolist()))[1:]:
        is_brand = (brand == one).astype(np.float64)
        columns += [is_brand, is_brand * before, is_brand * potential]
    causes = np.column_stack(columns)
    kept = mask & np.isfinite(outcome) & np.isfinite(causes).all(axis=1)
    return Study(np.flatnonzero(kept), data.column(programme)[kept] == 1, outcome[kept], causes[kept])


def measure_signals(study: Study) -> Signals:
    """Return the cross-fitted signals of a study; the same each time."""
    fold = _folds(study)
    effect, untreated, chance = (np.empty(len(study.rows)) for _ in range(3))
    for one in range(FOLDS):
        part = fold == one
        effect[part], untreated[part], chance[part] = score(study, ~part, part)
    return Signals(effect, untreated, chance)


def restrict(study: Study, signals: Signals, mask: Mask) -> tuple[Study, Signals]:
    """Return the part of a study that lies in `mask` (one value an HCP of the data); the models stay those of the whole study."""
    kept = mask[study.rows]
    part = Study(study.rows[kept], study.treated[kept], study.outcome[kept], study.causes[kept])
    return part, Signals(signals.effect[kept], signals.untreated[kept], signals.chance[kept])


def score(study: Study, seen: Mask, judged: Mask) -> tuple[Reals, Reals, Reals]:
    """Return effect signals, untreated signals and chances of the HCPs in `judged`, by models fitted on those in `seen`."""
    centre, spread = study.causes[seen].mean(axis=0), np.maximum(study.causes[seen].std(axis=0), 1e-9)
    causes = (study.causes - centre) / spread
    model = LogisticRegression(max_iter=300).fit(causes[seen], study.treated[seen])
    chance = np.clip(model.predict_proba(causes[judged])[:, 1], LEAST_CHANCE, 1.0 - LEAST_CHANCE)
    design = np.column_stack([np.ones(len(causes)), causes])
    expected = []
    for arm in (study.treated, ~study.treated):
        weights = np.linalg.lstsq(design[seen & arm], study.outcome[seen & arm], rcond=None)[0]
        expected.append(design[judged] @ weights)
    outcome, treated = study.outcome[judged], study.treated[judged]
    with_it = expected[0] + treated * (outcome - expected[0]) / chance
    without = expected[1] + ~treated * (outcome - expected[1]) / (1.0 - chance)
    return np.asarray(with_it - without), np.asarray(without), np.asarray(chance)


def measure_group(study: Study, signals: Signals, member: Mask, group: str) -> GroupEffect:
    """Return the effect in the HCPs in `member`, at least two of them."""
    part = signals.effect[member]
    return GroupEffect(
        group=group,
        value=float(part.mean()),
        standard_error=float(part.std(ddof=1) / np.sqrt(len(part))),
        size=len(part),
        treated=int(study.treated[member].sum()),
        untreated_mean=float(signals.untreated[member].mean()),
    )


def check_heterogeneity(strata: list[list[GroupEffect]]) -> Heterogeneity:
    """Return Cochran's Q (Cochran 1954), summed over strata within which groups are compared; groups are disjoint sets of HCPs."""
    statistic, degrees = 0.0, 0
    for groups in strata:
        values, weights = _values(groups), 1.0 / _variances(groups)
        common = float(np.average(values, weights=weights))
        statistic += float((weights * (values - common) ** 2).sum())
        degrees += len(groups) - 1
    p_value = float(chi2.sf(statistic, degrees)) if degrees else 1.0
    return Heterogeneity(statistic, degrees, p_value, max(0.0, 1.0 - degrees / statistic) if statistic > 0 else 0.0)


def shrink(groups: list[GroupEffect]) -> list[float]:
    """Return the effects drawn towards their common mean as far as chance explains their spread.

    Empirical Bayes with the between-group variance of DerSimonian and Laird (1986). It takes off what the best group owes to luck.
    """
    values, variances = _values(groups), _variances(groups)
    weights = 1.0 / variances
    common = float(np.average(values, weights=weights))
    excess = float((weights * (values - common) ** 2).sum()) - (len(groups) - 1)
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    between = max(0.0, excess / scale) if scale > 0 else 0.0
    centre = float(np.average(values, weights=1.0 / (variances + between)))
    kept = between / (between + variances)
    return [float(one) for one in centre + kept * (values - centre)]


def chances_of_lead(groups: list[GroupEffect]) -> tuple[list[float], list[float]]:
    """Return each group's chance to have the largest, and the smallest, true effect, given estimates and errors."""
    rng = np.random.default_rng(SEED)
    drawn = rng.normal(_values(groups), np.sqrt(_variances(groups)), size=(DRAWS, len(groups)))
    places = np.arange(len(groups))
    best, worst = drawn.argmax(axis=1)[:, None] == places, drawn.argmin(axis=1)[:, None] == places
    return [float(one) for one in best.mean(axis=0)], [float(one) for one in worst.mean(axis=0)]


def null_chance(p_value: float) -> float:
    """Return the least chance that there is no difference, given a p-value below 1/e and even odds beforehand.

    The bound of Sellke, Bayarri and Berger (2001), "Calibration of p values for testing precise null hypotheses".
    """
    bound = -np.e * p_value * np.log(max(p_value, 1e-300))
    return float(bound / (1.0 + bound))


def halve(study: Study, rng: np.random.Generator) -> Mask:
    """Return a random half of the study's HCPs, with half of the treated in it."""
    half = np.zeros(len(study.rows), dtype=bool)
    for arm in (study.treated, ~study.treated):
        members = rng.permutation(np.flatnonzero(arm))
        half[members[: len(members) // 2]] = True
    return half


def _folds(study: Study) -> NDArray[np.int64]:
    fold = np.empty(len(study.rows), dtype=np.int64)
    rng = np.random.default_rng(SEED)
    for arm in (study.treated, ~study.treated):
        members = rng.permutation(np.flatnonzero(arm))
        fold[members] = np.arange(len(members)) % FOLDS
    return fold


def _values(groups: list[GroupEffect]) -> Reals:
    return np.array([one.value for one in groups])


def _variances(groups: list[GroupEffect]) -> Reals:
    return np.asarray(np.maximum([one.standard_error**2 for one in groups], 1e-18))
