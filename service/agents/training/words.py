"""The wishes in a request for a model: families, metric, folds, trials, weights, and what cannot be done. It knows no data."""

import re
from dataclasses import dataclass

from service.agents.kpi import normal_form
from service.agents.training.scope import FAMILIES, MOST_TRIALS, Family, FixedParameters
from service.agents.training.window import replace_number_words

STANDARD: tuple[Family, ...] = ("linear", "k_nearest", "random_forest", "hist_gradient_boosting")
SEARCH_TRIALS = 12
DEFAULT_FOLDS = 5
_FAMILY_WORDS: dict[Family, str] = {
    "linear": r"logistic(?: regression)?|logit|linear(?: model| regression)?|glm|scorecard|ridge|lasso|elastic net",
    "decision_tree": r"decision tree|(?:simple|single|small|readable) tree",
    "k_nearest": r"knn|k nn|k nearest|nearest neighbou?rs?",
    "random_forest": r"random forests?|forests?",
    "hist_gradient_boosting": r"xg ?boost|xgb|light ?gbm|light gbm|lgbm|cat ?boost|gradient boost\w*|gbms?|gbdt|booster|boosted trees|"
    r"boosting",
    "neural_network": r"neural net\w*|neural|mlp|deep learning|lstm|nn",
}
_METRIC_WORDS = (
    ("pr_auc", r"pr auc|prauc|auprc|average precision|precision recall|precision at the top|precision"),
    ("brier", r"brier"),
    ("log_loss", r"log ?loss|cross entropy"),
    ("rmse", r"rmse|squared error"),
    ("mae", r"mae|absolute error|pinball"),
    ("r2", r"r2|r squared|explained variance"),
    ("roc_auc", r"roc auc|auc|roc|auroc"),
)
_IMBALANCE = (
    r"class weights?|imbalance\w*|focal loss|smote|rebalance\w*|weighted classes|too few \w+|weights of 1|undersampl\w*|oversampl\w*|recall"
)
_SEARCH = (
    r"hyper ?param\w*|hyperparameters?|sweep|grid|tune|tuning|optuna|automl|bayesian tuning|search|optimi[sz]e the (?:threshold|"
    r"learning|hyper|tree)\w*"
)
_HOLD = (
    r"(?:don t|do not|dont|never|not) (?:push|release|deploy|publish|ship|promote)|release nothing|not ready to release|nothing (?:is "
    r")?released|"
    r"don t release|no release"
)
UNSUPPORTED = (
    (
        r"x learner|t learner|s learner|uplift|causal forest|heterogeneous treatment",
        "an uplift learner; heterogeneous_optimizer estimates who responds best",
    ),
    (r"survival|cox|time to (?:discontinuation|event)", "a survival model"),
    (r"cluster\w*|segmentation|k means|silhouette", "clusters"),
    (
        r"lambdamart|ranker|ranking|recommend\w*|next best|nba|bandit|reinforcement",
        "a ranker or recommender: the data have no suggestions and no reactions to them",
    ),
    (
        r"sentiment|call notes?|notes? (?:tagger|classifier|grader)|note tagg\w*|text classif\w*|bert|verbatims|call reports|inquiries|"
        r"embeddings?",
        "a text model: the data have no texts",
    ),
    (r"mmm|media mix|response curves?|marketing mix", "a response curve; resource_optimizer fits those"),
    (r"gnn|graph neural|transformer", "a graph or sequence network"),
)
"""Kinds of model that cannot be trained here, and what to say of each."""
NO_LABEL = (
    r"adherence|persisten\w+|refills?|readmission|no shows?|no see|fraud|nps|detractors?|rebates?|formulary|approval|payer|prior auth\w*|"
    r"copay|price|"
    r"e ?mail|send time|click\w*|opens?|engagement|out of stock|adverse|therapy|territory potential|lifetime value|ltv|income|"
    r"call time|next best channel|hospital accounts?|accounts?|reps at risk|missed|purchase"
)
"""Outcomes that people ask for and that the data do not record; they count only where no recorded outcome is named."""
LIMITS = (
    (r"gpus?", "There is no GPU; the models are small and were fitted on one CPU core."),
    (r"focal loss|smote|oversampl\w*|undersampl\w*", "Focal loss and resampling are not offered; balanced class weights were used "
        "instead."),
    (r"prophet|arima", "Prophet and ARIMA are not installed; demand is modelled HCP by HCP from earlier weeks."),
    (r"warm start|checkpoint|resume|continue from|incremental\w*|fine ?tun\w*|epochs", "Nothing is continued from earlier weights: the "
        "model is fitted anew."),
    (r"every (?:week|month|day|sunday|monday|quarter)|monthly|weekly|schedule|nightly|automatic\w*", "No schedule is set: the model is "
        "fitted once, now."),
    (r"tonight|tonite|overnight|by (?:friday|monday|thursday|wednesday|tuesday|sunday)", "The work is done at once, not at a later time."),
    (r"ensembles?|stack\w*|distil\w*|meta model", "Ensembles of models are not offered: the families are compared and one is kept."),
    (r"monotone?\w*", "Monotone constraints are not offered."),
    (r"hierarchical|bayesian (?:hierarchical|model)|pooling", "Hierarchical models are not offered."),
    (r"bayesian tuning|optuna|early pruning", "Settings are drawn at random from fixed ranges (Bergstra and Bengio 2012), not by "
        "Bayesian search."),
    (r"(?:one|separate|own) models?(?: \w+){0,3} (?:per|for each|by|for) |separate models?|one model per|two learners|make two|train "
        r"all", "One model is trained, not one a group; group labels are among its inputs."),
    (r"semi supervised|unlabell?ed|pre ?train\w*|transfer", "Only labelled rows are used; nothing is learnt from unlabelled or foreign "
        "data."),
    (r"thumbs|feedback|labell?ed|hand coded|chart review|corrected labels|new labels|my labels", "Labels from outside are not in the "
        "data; the target is computed from the weekly counts."),
    (r"lstm|sequence", "There are no sequence networks; a feed-forward network on sums of weeks stands in."),
    (r"recall|f1|f2|accuracy", "Recall, F scores and accuracy need a threshold; candidates are compared by a metric over all thresholds."),
    (r"(?:2|two|\d+) ?(?:hr|hour|h)s? ?(?:limit|budget)?|hours? budget", "The search ends by its number of trials, long before a limit "
        "in hours."),
    (r"same (?:split|seed)|different seed|another seed", "The split is by time and the seed is fixed, so a repeated run gives the same "
        "numbers."),
    (r"covid|pandemic|promo weeks|corrupted", "Weeks inside the window cannot be left out one by one; only the window's ends can be set."),
    (r"patients?", "The data count patients by HCP and know none of them: rows are HCPs."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a text asks for, as far as it says; None or empty where it says nothing."""

    families: tuple[Family, ...]
    metric: str | None
    folds: int | None
    trials: int
    early_stopping: int | None
    class_weights: bool
    calibration: str | None
    fixed: FixedParameters
    horizon_weeks: int | None
    hold: bool
    caveats: tuple[str, ...]


def read_wishes(question: str) -> Wishes:
    """Read the wishes of a request; numbers beyond the limits are drawn in, and a caveat says so."""
    text = replace_number_words(normal_form(question.replace("_", " ")))
    caveats = [sentence for pattern, sentence in LIMITS if re.search(rf"\b(?:{pattern})\b", text)]
    trials = _trials(text, caveats)
    folds = re.search(r"\b(\d{1,3}) folds?\b", text)
    if folds and not 2 <= int(folds[1]) <= 10:
        caveats.append(f"{folds[1]} folds were asked for; 2 to 10 are possible.")
    stopping = re.search(r"early stop\w*(?: (?:at|after|with))?(?: (\d{1,3}))?|stop early(?: (?:at|after) (\d{1,3}))?", text)
    return Wishes(
        families=_families(text, caveats),
        metric=next((name for name, pattern in _METRIC_WORDS if re.search(rf"\b(?:{pattern})\b", text)), None),
        folds=min(10, max(2, int(folds[1]))) if folds else None,
        trials=trials,
        early_stopping=None if stopping is None else min(200, max(1, int(stopping[1] or stopping[2] or 10))),
        class_weights=bool(re.search(rf"\b(?:{_IMBALANCE})\b", text)),
        calibration="isotonic"
        if "isotonic" in text
        else "sigmoid"
        if re.search(r"\b(?:calibrate|recalibrate|platt|probs are)\b", text)
        else None,
        fixed=_fixed(question, text, caveats),
        horizon_weeks=_horizon(text),
        hold=bool(re.search(rf"\b(?:{_HOLD})\b", text)),
        caveats=tuple(caveats),
    )


def excluded_phrases(question: str) -> list[str]:
    """Return the phrases that name what is to be left out of the inputs, in the caller's words."""
    end = (
        r"(?=$|[.;:!?]|,| so\b| then\b| from\b| since\b| because\b| out\b| and (?:fit|re|run|train|post|see|tell|start|go)| of the inputs)"
    )
    patterns = (
        rf"\b(?:without|w/o|excluding|exclude|minus)\s+(?:the\s+|any\s+|all\s+|leaky\s+)*(.{{2,60}}?){end}",
        r"\b(?:drop|remove|strip)\s+(?:the\s+|any\s+|all\s+)*(.{2,60}?)\s+(?:columns?|fields?|inputs?|features?|variables?)",
        r"\b(?:leave|take|keep)\s+(?:the\s+)?(.{2,60}?)\s+out\b",
    )
    phrases = [found[1] for pattern in patterns for found in re.finditer(pattern, question, flags=re.IGNORECASE)]
    parts = [part for phrase in phrases for part in re.split(r",| and | or |/", phrase)]
    return [part.strip(" '\"") for part in parts if part.strip(" '\"")]


def _families(text: str, caveats: list[str]) -> tuple[Family, ...]:
    comparing = re.search(r"\b(?:both|compare|better|best|wins?|winner|keep|see (?:if|whether)|against|versus|vs)\b", text)
    read = text if comparing else re.sub(r"\b(?:instead of|rather than) (?:the |an? )?(?:\w+ ?){1,2}", " ", text)
    named = tuple(family for family in FAMILIES if re.search(rf"\b(?:{_FAMILY_WORDS[family]})\b", read))
    if stood_in := re.findall(r"\b(?:xg ?boost|xgb|light ?gbm|lgbm|cat ?boost)\b", text):
        names = " and ".join(dict.fromkeys(stood_in))
        also = "both names mean the same model here" if len(set(stood_in)) > 1 else "it grows trees in the same way"
        caveats.append(f"{names} not installed: scikit-learn's histogram gradient boosting stands in; {also}.")
    if unknown := re.search(r"\b(?:svm|support vector|naive bayes|gaussian process|tabnet)\b", text):
        caveats.append(f"{unknown[0]} is not offered.")
    return named


def _trials(text: str, caveats: list[str]) -> int:
    counted = re.search(
        r"\b(\d{1,6}) (?:trials|rounds|iterations|evaluations|configurations|draws)\b",
        re.sub(r"early stop\w* (?:at|after) \d+ \w+", " ", text),
    )
    if counted and re.search(rf"\b(?:{_SEARCH}|trials)\b", text):
        wanted = int(counted[1])
        if wanted > MOST_TRIALS:
            caveats.append(f"{wanted} trials were asked for; {MOST_TRIALS} is the most that is run, over all families together.")
        return min(MOST_TRIALS, max(1, wanted))
    return SEARCH_TRIALS if re.search(rf"\b(?:{_SEARCH})\b", text) else 0


def _fixed(question: str, text: str, caveats: list[str]) -> FixedParameters:
    trees = re.search(r"\b(\d{2,5}) trees\b", text)
    depth = re.search(r"\bdepth (?:of )?(\d{1,2})\b", text)
    rate = re.search(r"\blearning rate (?:of |to |at )?(0?\.\d{1,4})", question, flags=re.IGNORECASE)
    if trees and int(trees[1]) > 300:
        caveats.append(f"{trees[1]} trees were asked for; 300 is the most that is grown.")
    return FixedParameters(
        trees=min(300, max(10, int(trees[1]))) if trees else None,
        depth=min(12, max(1, int(depth[1]))) if depth else None,
        learning_rate=min(1.0, max(0.001, float(rate[1]))) if rate else None,
    )


def _horizon(text: str) -> int | None:
    unit = {"d": 1 / 7, "day": 1 / 7, "week": 1.0, "w": 1.0, "wk": 1.0, "month": 52 / 12, "mo": 52 / 12, "quarter": 13.0}
    patterns = (
        r"\b(?:within|next|coming|in the first|first|in|over the next) (\d{1,3}) ?(d|day|w|wk|week|month|mo|quarter)s?\b(?! of)",
        r"\b(\d{1,3}) ?(d|day|w|wk|week|month|mo)s? (?:ahead|out|horizon|outcome|window)\b",
        r"\b(?:converted|convert|churn|lapse|switch|start|rx|wrote in|conversion) (\d{1,3}) ?(d|day|w|wk|week|month|mo)s?\b",
    )
    for pattern in patterns:
        if found := re.search(pattern, text):
            return max(1, round(int(found[1]) * unit[found[2]]))
    named = re.search(r"\bnext (week|month|quarter) ?s?\b", text)
    return round(unit[named[1]]) if named else None
