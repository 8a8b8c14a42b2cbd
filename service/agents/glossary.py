"""The terms that the explainer knows: what each means, and an example computed on the data at hand."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.agents.kpi import Kpi, find_kpi, normal_form
from service.agents.sample_data import Mask, Reals, Snapshot
from service.agents.stability import ks, psi

Example = Callable[[Snapshot, Mask], str]
_NOISE = re.compile(
    r"a|an|the|is|are|was|what|which|does|do|did|mean|means|meaning|of|in|on|for|to|me|us|please|explain|define|term|how|why|this|that|our|i|you|it|and|by|with"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One entry of the glossary."""

    name: str
    aliases: tuple[str, ...]
    meaning: str
    example: Example

    def match(self, question: str) -> float:
        """Return 0 when the question does not name the term, else 0.6 to 1: the more of its content words are the term, the higher."""
        text = normal_form(question)
        hits = [form for known in (self.name, *self.aliases) if f" {(form := normal_form(known))} " in f" {text} "]
        if not hits:
            return 0.0
        content = [word for word in text.split() if not _NOISE.fullmatch(word)]
        own = set(max(hits, key=len).split())
        return 0.6 + 0.4 * sum(word in own for word in content) / max(len(content), 1)


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A term that a question names, and how well it does."""

    term: Term
    quality: float


def find_term(question: str) -> TermMatch | None:
    """Return the term that a question names best, or None."""
    matches = [TermMatch(term, term.match(question)) for term in TERMS]
    best = max(matches, key=lambda match: match.quality)
    return best if best.quality > 0.0 else None


def _recent(data: Snapshot, mask: Mask, measure: str, weeks: int = 26) -> Reals:
    return np.asarray(data.weekly[measure][-weeks:, mask].mean(axis=0))


def _ate(data: Snapshot, mask: Mask) -> str:
    trx, treated, decile = _recent(data, mask, "trx"), data.column("call_programme")[mask] == 1, data.column("decile")[mask]
    naive = trx[treated].mean() - trx[~treated].mean()
    strata = [(trx[treated & (decile == level)], trx[~treated & (decile == level)]) for level in np.unique(decile)]
    usable = [(len(a) + len(b), a.mean() - b.mean()) for a, b in strata if len(a) and len(b)]
    within = np.average([gap for _, gap in usable], weights=[size for size, _ in usable])
    return (
        f"HCPs in the call programme write {naive:+.2f} TRx a week against the others, but within equal deciles the mean difference is "
        f"only {within:+.2f}; the second number is the better estimate of the average effect."
    )


def _interval(data: Snapshot, mask: Mask) -> str:
    trx = _recent(data, mask, "trx")
    half = 1.96 * trx.std(ddof=1) / np.sqrt(len(trx))
    return (
        f"the {len(trx):,} HCPs wrote {trx.mean():.2f} TRx a week on average over the last 26 weeks, 95 % interval "
        f"{trx.mean() - half:.2f} to {trx.mean() + half:.2f}."
    )


def _p_value(data: Snapshot, mask: Mask) -> str:
    rng = np.random.default_rng(3)
    trx, academic = _recent(data, mask, "trx"), data.labels("setting")[mask] == "academic"
    gap = trx[academic].mean() - trx[~academic].mean()
    shuffled = [(mixed := rng.permutation(academic), trx[mixed].mean() - trx[~mixed].mean())[1] for _ in range(500)]
    share = float(np.mean(np.abs(shuffled) >= abs(gap)))
    chance = f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"
    return (
        f"academic HCPs write {gap:+.2f} TRx a week against community HCPs; with the labels shuffled 500 times a gap as wide came up in "
        f"{chance} of the cases."
    )


def _confounding(data: Snapshot, mask: Mask) -> str:
    treated, decile = data.column("call_programme")[mask], data.column("decile")[mask]
    top, bottom = treated[decile >= 8].mean(), treated[decile <= 3].mean()
    return (
        f"{100 * top:.0f} % of the HCPs in deciles 8-10 are in the call programme but {100 * bottom:.0f} % of those in deciles 1-3, and "
        "high deciles write more anyway; a plain comparison mixes the two."
    )


def _placebo(data: Snapshot, mask: Mask) -> str:
    rng = np.random.default_rng(4)
    trx, treated = _recent(data, mask, "trx"), data.column("call_programme")[mask] == 1
    real = trx[treated].mean() - trx[~treated].mean()
    fake = np.mean([(mixed := rng.permutation(treated), trx[mixed].mean() - trx[~mixed].mean())[1] for _ in range(200)])
    return (
        f"the difference between HCPs in and out of the call programme is {real:+.2f} TRx a week; with membership shuffled 200 times it "
        f"is {fake:+.2f} on average."
    )


def _heterogeneity(data: Snapshot, mask: Mask) -> str:
    gain = data.weekly["trx"][-26:, mask].mean(axis=0) - data.weekly["trx"][-78:-26, mask].mean(axis=0)
    treated, academic = data.column("call_programme")[mask] == 1, data.labels("setting")[mask] == "academic"
    effect = [gain[treated & group].mean() - gain[~treated & group].mean() for group in (academic, ~academic)]
    return (
        f"compared with the year before, the call programme's HCPs gained {effect[0]:+.2f} TRx a week more than others in academic "
        f"practices and {effect[1]:+.2f} in community ones."
    )


def _shap(data: Snapshot, mask: Mask) -> str:
    columns = np.column_stack([data.column("decile")[mask], data.column("potential")[mask], data.column("digital_affinity")[mask]])
    trx = _recent(data, mask, "trx")
    centred = columns - columns.mean(axis=0)
    coefficients = np.linalg.lstsq(centred, trx - trx.mean(), rcond=None)[0]
    parts = centred[0] * coefficients
    first = data.labels("hcp_id")[mask][0]
    return (
        f"a linear model predicts {trx.mean() + parts.sum():.2f} TRx a week for {first}: the average of {trx.mean():.2f}, {parts[0]:+.2f} "
        f"for the decile, {parts[1]:+.2f} for the potential and {parts[2]:+.2f} for the digital affinity."
    )


def _drift_windows(data: Snapshot, mask: Mask, measure: str) -> tuple[Reals, Reals]:
    return data.weekly[measure][-16:-8, mask].mean(axis=0), data.weekly[measure][-8:, mask].mean(axis=0)


def _psi(data: Snapshot, mask: Mask) -> str:
    emails, calls = (psi(*_drift_windows(data, mask, measure)) for measure in ("emails", "calls"))
    return f"between the last 8 weeks and the 8 before, emails per HCP have a PSI of {emails:.2f} and calls one of {calls:.2f}."


def _ks(data: Snapshot, mask: Mask) -> str:
    distance, p_value = ks(*_drift_windows(data, mask, "emails"))
    written = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2f}"
    return (
        f"the distributions of emails per HCP in the last 8 weeks and the 8 before are {distance:.2f} apart at the widest point "
        f"({written})."
    )


def _quality_gate(data: Snapshot, mask: Mask) -> str:
    missing, negative = int(np.isnan(data.column("panel_size")[mask]).sum()), int((data.weekly["samples"][:, mask] < 0).sum())
    return (
        f"panel size is missing for {missing} of {int(mask.sum()):,} HCPs ({100 * missing / mask.sum():.1f} %) and {negative} sample "
        "counts are below 0; a gate that asks for 98 % complete rows would pass."
    )


def _decile(data: Snapshot, mask: Mask) -> str:
    trx, decile = _recent(data, mask, "trx"), data.column("decile")[mask]
    return f"HCPs in decile 10 write {trx[decile == 10].mean():.1f} TRx a week, those in decile 1 {trx[decile == 1].mean():.1f}."


def _kpi_example(name: str) -> Example:
    def example(data: Snapshot, mask: Mask) -> str:
        kpi: Kpi | None = find_kpi(name)
        if kpi is None:
            return ""
        series = kpi.series(data, mask)
        return (
            f"over the last 13 weeks it averaged {kpi.write(series[-13:].mean())}{'' if kpi.denominator else ' a week'}, after "
            f"{kpi.write(series[-26:-13].mean())} in the 13 weeks before."
        )

    return example


TERMS = (
    Term(
        "average treatment effect",
        ("ate", "treatment effect", "causal effect"),
        "The average treatment effect (ATE) is how much an outcome changes, on average over all units, because of a treatment, and not "
        "because of which units got it.",
        _ate,
    ),
    Term(
        "confidence interval",
        ("confidence intervals", "ci", "95 interval"),
        "A 95 % confidence interval is a range made so that, over repeated samples, 95 of 100 such ranges hold the true value; a wide "
        "one means little evidence.",
        _interval,
    ),
    Term(
        "p-value",
        ("p values", "statistical significance", "significance"),
        "A p-value is the chance of a difference at least as wide as the observed one if there were none in truth; it says nothing about "
        "how large or useful the difference is.",
        _p_value,
    ),
    Term(
        "confounding",
        ("confounder", "confounders", "selection bias", "naive difference"),
        "Confounding is when something drives both who gets a treatment and the outcome, so that a plain comparison shows an effect that "
        "is not there, or the wrong size of one.",
        _confounding,
    ),
    Term(
        "refutation",
        ("placebo", "placebo test", "refutation test", "refutation tests", "random common cause"),
        "A refutation test tries to break an estimate: a placebo treatment should show no effect, and an added random cause should not "
        "move the estimate.",
        _placebo,
    ),
    Term(
        "heterogeneous effect",
        ("cate", "heterogeneous effects", "heterogeneity", "uplift", "subgroup effect"),
        "An effect is heterogeneous when it differs between groups; the effect within one group is its conditional average treatment "
        "effect (CATE).",
        _heterogeneity,
    ),
    Term(
        "SHAP",
        ("shap value", "shap values", "shapley", "feature attribution"),
        "SHAP values split one prediction into the average prediction plus a part for each feature; the parts add up exactly.",
        _shap,
    ),
    Term(
        "PSI",
        ("population stability index",),
        "The population stability index (PSI) compares two distributions bin by bin; below 0.1 counts as stable, 0.1 to 0.25 as a "
        "moderate shift, above as a large one.",
        _psi,
    ),
    Term(
        "Kolmogorov-Smirnov",
        ("ks", "ks test", "kolmogorov smirnov test"),
        "The Kolmogorov-Smirnov statistic is the widest distance between two cumulative distributions; with many units even small "
        "distances are significant.",
        _ks,
    ),
    Term(
        "drift",
        ("data drift", "concept drift", "model drift"),
        "Drift is a change over time of the data's distribution (data drift) or of the relation that a model has learned (concept drift).",
        _psi,
    ),
    Term(
        "QC gate",
        ("quality gate", "qc", "quality control gate"),
        "A QC gate is a check between two steps of a pipeline: data that miss its thresholds stop the pipeline instead of training a "
        "model.",
        _quality_gate,
    ),
    Term(
        "decile",
        ("deciles",),
        "A decile ranks HCPs by potential within a brand: 10 is the tenth with the highest potential, 1 the tenth with the lowest.",
        _decile,
    ),
    Term("TRx", ("total prescriptions",), "TRx are all prescriptions, new and refilled.", _kpi_example("trx")),
    Term("NRx", ("new prescriptions",), "NRx are first prescriptions, without refills.", _kpi_example("nrx")),
    Term("market share", (), "Market share is the brand's TRx over all TRx of its market.", _kpi_example("market_share")),
    Term(
        "conversion rate",
        (),
        "The conversion rate is the share of candidate patients who start the therapy.",
        _kpi_example("conversion_rate"),
    ),
)
