"""What a question about a model's inputs asks for: which analyses, which inputs, how many. It knows no model."""

import re
from dataclasses import dataclass

from service.agents.directory import AGENTS
from service.agents.kpi import normal_form
from service.agents.training.inputs import absent_data, mentioned_inputs
from service.agents.training.window import replace_number_words

DEFAULT_TOP = 10
MOST_TOP = 30
_ANALYSES = {
    "leakage": r"leak\w*|cheat\w*|already knows?|knows? the (?:answer|future|outcome)|sneak\w*|too good to be true|known after|only "
    r"becomes? known|stamped after|"
    r"not be known|recorded after|filled in after|suspicious\w*|time travel",
    "overlap": r"same thing|redundan\w*|overlap\w*|correlat\w*|need (?:\w+ ){0,2}both|do we need|need all|twice|duplicat\w*|"
    r"interchangeable|collinear\w*|colinear\w*|clusters?|vifs?|pca|heatmap|proxy|stand in|"
    r"stands in|stand ins|substitute",
    "boruta": r"boruta|shadow features?|rfe|recursive feature|lasso path|survives?",
    "redundant": r"throw (?:away|out)|drop candidates?|drop|ditch|get rid|lose nothing|without losing|fewer|useless|dead weight|"
    r"unnecessary|get by|weed out|prune|near constant|"
    r"how many of our features|do the job|handful|short ?list|nearly the same|cripple|could the model do without",
    "ablation": r"shuff?l\w*|ablation|goes away|vanish\w*|disappear\w*|without (?:it|them)|lose if|if we lost|get (?:anything|any) |real "
    r"use|use (?:it|them|of)|useful|worth|"
    r"depends? on|rely|relies|hinge\w*|any work|add anything|adds? any\w*|contribute\w*|much weight|plays? (?:a|any) (?:part|role)|any "
    r"information|signal in|carry|care about|swears",
    "contribution": r"shap\w*|contributions?|push\w*|beeswarm|partial dependence|direction|up or down",
    "importance": r"importan\w*|lean\w*|top \d+|rank\w*|drivers?|predictors?|most|permutation|permuation|gain|look\w* at|counts?|"
    r"matters?|weigh\w*|strongest|strong|influen\w*|"
    r"attention|informative|features|inputs|variables|which",
}
_NOT_DONE = (
    (r"interact\w*", "Interactions between inputs are not measured."),
    (r"partial dependence|pdp", "Partial dependence is not drawn; the sign of each contribution says in which direction an input pushes."),
    (r"gain", "Gain rankings are the training's own account of a tree model; permutation on held-out rows is used in their place."),
    (r"pca", "No principal components are computed; clusters of correlated inputs answer the same question."),
    (r"rfe|recursive feature|lasso path", "Recursive elimination and lasso paths are not run; the shadow-feature test stands in."),
    (r"mutual information", "Mutual information is not computed; the AUC of each input alone stands in."),
    (r"shap\w*|beeswarm", "Shapley values are exact for the linear model under independent inputs (Lundberg and Lee 2017); tree models "
        "get none here."),
    (r"old and new|before and after|compare .* with the national|differ", "One model is analysed; two are not compared."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FeatureRequest:
    """What is asked: the analyses in order of weight, the inputs by the words that name them, and words for inputs that the data lack."""

    analyses: tuple[str, ...]
    mentioned: dict[str, tuple[str, ...]]
    absent: tuple[str, ...]
    top: int
    columns_said: int | None
    version: int | None
    protected: bool
    caveats: tuple[str, ...]


def read_feature_request(question: str, inputs: tuple[str, ...]) -> FeatureRequest:
    """Read a question about inputs; where it names no analysis, the importance is meant."""
    text = replace_number_words(normal_form(question.replace("_", " ")))
    hits = {name: found.start() for name, pattern in _ANALYSES.items() if (found := re.search(rf"\b(?:{pattern})\b", text))}
    analyses = tuple(hits) or ("importance",)
    top = re.search(r"\b(?:top|best|first|strongest) (\d{1,3})\b|\b(\d{1,2}) (?:predictors|variables|features|inputs)\b", text)
    wanted = int(top[1] or top[2]) if top else DEFAULT_TOP
    columns = re.search(r"\b(\d{2,5}) (?:column|columns|features|variables|inputs|fields|call metrics)\b", text)
    version = re.search(r"\b(?:v ?|version )(\d{1,4})\b", text)
    caveats = [sentence for pattern, sentence in _NOT_DONE if re.search(rf"\b(?:{pattern})\b", text)]
    if columns and len(columns[1]) >= 2 and int(columns[1]) > MOST_TOP and int(columns[1]) != len(inputs):
        caveats.append(f"The question speaks of {columns[1]} columns; the sample's table is built from {len(inputs)} inputs.")
    return FeatureRequest(
        analyses=analyses,
        mentioned=mentioned_inputs(_without_target(question), inputs),
        absent=_absent(question, inputs),
        top=min(MOST_TOP, max(1, wanted)),
        columns_said=int(columns[1]) if columns else None,
        version=int(version[1]) if version else None,
        protected=bool(re.search(r"\b(?:ethnicity|race|racial|gender|sex|age|income|privacy|legal|compliance|fairness|certify)\b", text)),
        caveats=tuple(caveats),
    )


def _without_target(question: str) -> str:
    """Return the question without the words for the model itself: in 'the TRx forecaster' and 'NBRx model' TRx is no input."""
    question = re.sub(r"(?i)\bmarket[ _]share\b", " ", question)
    return re.sub(r"(?i)\b\w+(?:[ -]demand)? (?:model|forecaster|classifier|scorer|adherence|set|table|region columns?)s?\b", " ", question)


def _absent(question: str, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return words and technical names for data that are not among the inputs: 'payer', 'enrolled_in_hub'."""
    named = [] if question.lstrip().startswith("{") else re.findall(r"\b[a-zA-Z][a-zA-Z0-9]*(?:_[a-zA-Z0-9]+)+\b", question)
    technical = [word for word in named if word not in AGENTS and not mentioned_inputs(word, inputs)]
    spaced = question
    for word in technical:
        spaced = spaced.replace(word, " ")
    return tuple(dict.fromkeys([*technical, *absent_data(spaced)]))
