"""The terms that the explainer knows: what each means, and an example computed on the data at hand."""

import re
from dataclasses import dataclass

from service.agents.kpi import normal_form
from service.agents.term_examples import (
    Example,
    ate,
    chances_of_conversion,
    email_targeting,
    ends_of_deciles,
    faults_in_data,
    gain_by_setting,
    ks_of_emails,
    leader_over_draws,
    level_of,
    mean_with_interval,
    one_prediction,
    people_reached,
    placebo,
    psi_of_contacts,
    pull_of_deciles,
    shuffled_labels,
    slope_of_potential,
    trx_beside_share,
    volume_share_waterfall,
    who_was_chosen,
)

_NOISE = re.compile(
    r"a|an|the|is|are|was|what|which|does|do|did|mean|means|meaning|of|in|on|for|to|me|us|please|explain|define|term|how|why|this|that|our|i|you|it|and|by|with"
)
_COMPARES = re.compile(r"\b(?:vs|versus|diff\w*|compared)\b")
MOST_COMPARED = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One entry of the glossary."""

    name: str
    aliases: tuple[str, ...]
    meaning: str
    example: Example

    def name_in(self, question: str) -> str:
        """Return the longest of the term's names that the question holds, in normal form, or an empty text."""
        text = f" {normal_form(question)} "
        return max((form for known in (self.name, *self.aliases) if f" {(form := normal_form(known))} " in text), key=len, default="")

    def match(self, question: str) -> float:
        """Return 0 when the question does not name the term, else 0.6 to 1: the more of its content words are the term, the higher."""
        text, found = normal_form(question), self.name_in(question)
        if not found:
            return 0.0
        content = [word for word in text.split() if not _NOISE.fullmatch(word)]
        own = set(found.split())
        return 0.6 + 0.4 * sum(word in own for word in content) / max(len(content), 1)


@dataclass(frozen=True, slots=True)
class TermMatch:
    """The term that a question names best, how well it does, and further terms that it asks to compare with it."""

    term: Term
    quality: float
    others: tuple[Term, ...] = ()


def find_term(question: str) -> TermMatch | None:
    """Return the term that a question names best, or None."""
    named = [term for term in TERMS if term.name_in(question)]
    if not named:
        return None
    text = normal_form(question)
    best = max(named, key=lambda term: (term.match(question), -text.index(term.name_in(question))))
    if not _COMPARES.search(text):
        return TermMatch(best, best.match(question))
    others = [term for term in named if term is not best and term.name_in(question) not in best.name_in(question)][: MOST_COMPARED - 1]
    return TermMatch(best, max(best.match(question), 0.6 + 0.2 * bool(others)), tuple(others))


TERMS = (
    Term(
        "average treatment effect",
        ("ate", "treatment effect", "causal effect"),
        "The average treatment effect (ATE) is how much an outcome changes, on average over all units, because of a treatment, and not "
        "because of which units got it.",
        ate,
    ),
    Term(
        "confidence interval",
        ("confidence intervals", "ci", "95 interval"),
        "A 95 % confidence interval is a range made so that, over repeated samples, 95 of 100 such ranges hold the true value; a wide "
        "one means little evidence. One that holds 0 does not show that there is no effect: every value in it fits the data.",
        mean_with_interval,
    ),
    Term(
        "p-value",
        ("p values", "statistical significance", "significance"),
        "A p-value is the chance of a difference at least as wide as the observed one if there were none in truth; it says nothing about "
        "how large or useful the difference is.",
        shuffled_labels,
    ),
    Term(
        "confounding",
        ("confounder", "confounders", "selection bias", "naive difference"),
        "Confounding is when something drives both who gets a treatment and the outcome, so that a plain comparison shows an effect that "
        "is not there, or the wrong size of one. This system's studies adjust for decile, potential, digital affinity, setting, region, "
        "brand and the outcome before, because these may drive both.",
        who_was_chosen,
    ),
    Term(
        "refutation",
        ("placebo", "placebo test", "refutation test", "refutation tests", "random common cause"),
        "A refutation test tries to break an estimate: a placebo treatment should show no effect, and an added random cause should not "
        "move the estimate.",
        placebo,
    ),
    Term(
        "heterogeneous effect",
        ("cate", "heterogeneous effects", "heterogeneity", "uplift", "subgroup effect"),
        "An effect is heterogeneous when it differs between groups; the effect within one group is its conditional average treatment "
        "effect (CATE).",
        gain_by_setting,
    ),
    Term(
        "SHAP",
        ("shap value", "shap values", "shapley", "feature attribution"),
        "SHAP values split one prediction into the average prediction plus a part for each feature; the parts add up exactly.",
        one_prediction,
    ),
    Term(
        "PSI",
        ("population stability index",),
        "The population stability index (PSI) compares two distributions bin by bin; below 0.1 counts as stable, 0.1 to 0.25 as a "
        "moderate shift, above as a large one.",
        psi_of_contacts,
    ),
    Term(
        "Kolmogorov-Smirnov",
        ("ks", "ks test", "kolmogorov smirnov test"),
        "The Kolmogorov-Smirnov statistic is the widest distance between two cumulative distributions; with many units even small "
        "distances are significant.",
        ks_of_emails,
    ),
    Term(
        "drift",
        ("data drift", "concept drift", "model drift"),
        "Drift is a change over time of the data's distribution (data drift) or of the relation that a model has learned (concept drift).",
        psi_of_contacts,
    ),
    Term(
        "QC gate",
        ("quality gate", "qc", "quality control gate"),
        "A QC gate is a check between two steps of a pipeline: data that miss its thresholds stop the pipeline instead of training a "
        "model.",
        faults_in_data,
    ),
    Term(
        "decile",
        ("deciles",),
        "A decile ranks HCPs by potential within a brand: 10 is the tenth with the highest potential, 1 the tenth with the lowest.",
        ends_of_deciles,
    ),
    Term("TRx", ("total prescriptions",), "TRx are all prescriptions, new and refilled.", level_of("trx")),
    Term("NRx", ("new prescriptions",), "NRx are first prescriptions, without refills.", level_of("nrx")),
    Term("market share", (), "Market share is the brand's TRx over all TRx of its market.", level_of("market_share")),
    Term(
        "conversion rate",
        (),
        "The conversion rate is the share of candidate patients who start the therapy.",
        level_of("conversion_rate"),
    ),
    Term(
        "NBRx",
        ("nbrxs", "new to brand", "new to brand prescriptions"),
        "NBRx are new-to-brand prescriptions: the first to a patient who has not had this brand before. NRx count every new prescription, "
        "also to patients who have had the brand, so NBRx are a part of NRx. The sample data have no patients, hence no NBRx.",
        level_of("nrx"),
    ),
    Term(
        "reach",
        ("reached", "reach and frequency", "hcp reach", "call frequency"),
        "Reach is the share of the target HCPs with at least one contact in the period: an HCP who was seen twice counts once. How often "
        "the reached ones were seen is the frequency.",
        people_reached,
    ),
    Term(
        "confidence score",
        ("confidence of", "confidence scores", "confidence level", "confidence value"),
        "The confidence of an answer, 0 to 1, says how firmly its own evidence holds: for example in what share of redrawn data the "
        "finding stays the same. It is not the chance that an action succeeds; around 0.6 the finding may well change with other data.",
        leader_over_draws,
    ),
    Term(
        "propensity score",
        ("propensity scores", "propensity", "conversion score", "score of", "probability score"),
        "A propensity or conversion score, 0 to 1, is a model's chance of an event for one HCP. Among many HCPs with a score of 0.7 about "
        "70 of 100 should have the event if the model is calibrated; it says nothing certain of a single one.",
        chances_of_conversion,
    ),
    Term(
        "instrumental variable",
        ("instrumental variables", "instrument variable"),
        "An instrumental variable moves who gets a treatment and acts on the outcome by no other way. It is used where what drives the "
        "choice cannot be measured. This system's studies do not use one: they adjust for what is measured.",
        email_targeting,
    ),
    Term(
        "adjusted estimate",
        ("adjusted", "adjustment", "adjusted for", "adjust for", "adjust", "adjusts"),
        "Adjusted means that HCPs of the same size and kind are compared with each other, so that who was chosen does not count as an "
        "effect. This system's studies adjust for decile, potential, digital affinity, setting, region, brand and the outcome before.",
        ate,
    ),
    Term(
        "sensitivity analysis",
        ("gamma", "unobserved confounding", "robust to unobserved confounding", "e value", "hidden confounding"),
        "Gamma (Rosenbaum) says how strong a hidden cause would have to be to explain an effect away: at 1.8 it would have to make one of "
        "two HCPs that look alike 1.8 times as likely, in odds, to be chosen. Near 1 is fragile; about 2 and more counts as fairly robust.",
        pull_of_deciles,
    ),
    Term(
        "waterfall chart",
        ("waterfall", "residual", "waterfall charts", "bridge chart"),
        "A waterfall chart splits a change into bars that start where the one before ends and add up to the whole. The residual is what "
        "the named causes leave unexplained; where it is the largest bar, the chart explains little of the change.",
        volume_share_waterfall,
    ),
    Term(
        "regression",
        ("regressions", "linear regression", "regression analysis"),
        "A regression draws the line, or its like in many dimensions, that fits an outcome best; a slope says how much the outcome differs "
        "with one unit of a feature, the other features being equal.",
        slope_of_potential,
    ),
    Term(
        "two axes",
        ("two y axes", "dual axis", "second axis", "secondary axis", "two axis", "right axis"),
        "On a chart with two y axes each line belongs to the axis with its measure or colour. Read each line's course against its own "
        "axis; where the lines cross, or which is higher, means nothing.",
        trx_beside_share,
    ),
    Term(
        "band around a line",
        ("grey band", "gray band", "shaded band", "shaded area", "grey area", "gray area", "grey funnel", "error bars", "error band"),
        "The line is the estimate or forecast, the band around it the range in which the value probably lies, mostly 90 or 95 of 100 "
        "times; the wider the band, the less is known.",
        mean_with_interval,
    ),
)
