"""The promotion court: what a challenger has to show before it serves, in order, and what each finding leads to. Pure.

Each step looks at evidence that others gathered and says what it found. A step that is required must find for the challenger; an advisory
one may not find against it; one that is skipped is not asked. The first step that stops the challenger ends the hearing, and the first one
whose evidence is still being gathered suspends it. Nothing is ever promoted on what was chosen on: the test was touched once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from optimizers.off_policy import Answer, OffPolicy
from optimizers.paired import Paired, worse_slices
from service.contracts.model import Contract, Instant, JsonObject


class Step(StrEnum):
    """The steps, in their order."""

    INTEGRITY = "integrity"
    TEST = "test"
    OFF_POLICY = "off_policy"
    SHADOW = "shadow"
    CANARY = "canary"


class Weight(StrEnum):
    """What a step's finding counts for."""

    REQUIRED = "required"
    ADVISORY = "advisory"
    SKIPPED = "skipped"


class Found(StrEnum):
    """What a step found."""

    FOR = "for"
    AGAINST = "against"
    NO_VERDICT = "no_verdict"
    PENDING = "pending"
    SKIPPED = "skipped"


class Ruling(StrEnum):
    """What becomes of the challenger."""

    PROMOTE = "promote"
    REJECT = "reject"
    WAIT = "wait"


class Rules(Contract):
    """What the court asks for; a YAML file of `optimize --rules`.

    Attributes:
        integrity, test, off_policy, shadow, canary: what each step's finding counts for.
        significance: chance at most of finding a challenger better on the test that is not, of one-sided tests.
        slice_significance: chance at most of finding any slice worse where none is.
        least_test: requests on which both must have been tested.
        shadow_least: requests that the challenger must have read beside the champion, within `shadow_hours` or there is no verdict.
        shadow_most_differing: share of them, at most, that it may route otherwise.
        shadow_most_failing: share of them, at most, on which it may fail.
        canary_share: share of the sessions that it serves as a canary.
        canary_least: requests that it must have served so, within `canary_hours`.
        canary_most_worse: by how much its rate of errors or of fallbacks may be higher, and its reward lower, where that is proven.
    """

    integrity: Weight = Weight.REQUIRED
    test: Weight = Weight.REQUIRED
    off_policy: Weight = Weight.ADVISORY
    shadow: Weight = Weight.SKIPPED
    canary: Weight = Weight.SKIPPED
    significance: Annotated[float, Field(gt=0.0, le=0.5)] = 0.025
    slice_significance: Annotated[float, Field(gt=0.0, le=0.5)] = 0.05
    least_test: Annotated[int, Field(ge=1)] = 100
    shadow_least: Annotated[int, Field(ge=1)] = 200
    shadow_hours: Annotated[float, Field(ge=0.0)] = 24.0
    shadow_most_differing: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    shadow_most_failing: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    canary_share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    canary_least: Annotated[int, Field(ge=1)] = 200
    canary_hours: Annotated[float, Field(ge=0.0)] = 24.0
    canary_most_worse: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0

    def weight(self, step: Step) -> Weight:
        """Return what a step's finding counts for."""
        weight: Weight = getattr(self, step.value)
        return weight


class Finding(Contract):
    """What one step found, in a sentence and in numbers."""

    step: Step
    found: Found
    reason: str
    figures: JsonObject = Field(default_factory=dict)


class Verdict(Contract):
    """The court's ruling on one challenger, with everything that led to it."""

    champion: str | None
    challenger: str
    ruling: Ruling
    reason: str
    findings: tuple[Finding, ...]
    rules: Rules
    decided_at: Instant


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both routers on the untouched test."""

    paired: Paired
    slices: Mapping[str, Paired]


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen of the challenger beside live traffic, for `hours` so far.

    Attributes:
        requests: that it read.
        differing: that it would have routed otherwise than the champion.
        failing: that it failed on.
    """

    hours: float
    requests: int
    differing: int
    failing: int


def rule(findings: Sequence[Finding], rules: Rules) -> tuple[Ruling, str]:
    """Return the ruling on findings in the order of the steps, and the sentence that decides it."""
    for finding in findings:
        weight = rules.weight(finding.step)
        if weight is Weight.SKIPPED:
            continue
        if finding.found is Found.PENDING:
            return Ruling.WAIT, finding.reason
        if finding.found is Found.AGAINST or (weight is Weight.REQUIRED and finding.found is not Found.FOR):
            return Ruling.REJECT, f"{finding.step.value}: {finding.reason}"
    if not any(finding.found is Found.FOR and finding.step is not Step.INTEGRITY for finding in findings):
        return Ruling.REJECT, "No step found for the challenger."
    return Ruling.PROMOTE, "Every step that is asked for found for the challenger, and none against it."


def judge_integrity(problems: Sequence[str]) -> Finding:
    """Judge what checking the version's files found."""
    if problems:
        return Finding(step=Step.INTEGRITY, found=Found.AGAINST, reason="; ".join(problems))
    return Finding(step=Step.INTEGRITY, found=Found.FOR, reason="Hashes, fingerprints and the rehearsal are as the manifest says.")


def judge_test(compared: Comparison | None, rules: Rules) -> Finding:
    """Judge the paired test: better over all, and in no slice that counts worse."""
    if compared is None:
        return Finding(step=Step.TEST, found=Found.NO_VERDICT, reason="There is no test set.")
    paired, worse = compared.paired, worse_slices(compared.slices, rules.slice_significance)
    figures: JsonObject = {
        "requests": paired.n,
        "champion": paired.champion,
        "challenger": paired.challenger,
        "difference": paired.difference,
        "interval": [paired.low, paired.high],
        "gained": paired.gained,
        "lost": paired.lost,
        "p_better": paired.p_better,
        "slices": len(compared.slices),
        "worse_slices": list(worse),
    }
    said = (
        f"{paired.challenger:.1%} against {paired.champion:.1%} on {paired.n} requests ({paired.gained} gained, {paired.lost} lost, "
        f"p = {paired.p_better:.3g})"
    )
    if paired.n < rules.least_test:
        reason = f"The test has {paired.n} requests; {rules.least_test} are needed."
        return Finding(step=Step.TEST, found=Found.NO_VERDICT, reason=reason, figures=figures)
    if worse:
        return Finding(step=Step.TEST, found=Found.AGAINST, reason=f"Worse on {', '.join(worse)}; over all {said}.", figures=figures)
    if paired.p_better > rules.significance:
        return Finding(step=Step.TEST, found=Found.AGAINST, reason=f"Not proven to be better: {said}.", figures=figures)
    return Finding(step=Step.TEST, found=Found.FOR, reason=f"Better: {said}.", figures=figures)


def judge_off_policy(estimated: OffPolicy | None) -> Finding:
    """Judge what the log says of the challenger's choices."""
    if estimated is None:
        return Finding(step=Step.OFF_POLICY, found=Found.NO_VERDICT, reason="There are no logged rewards.")
    found = {Answer.BETTER: Found.FOR, Answer.WORSE: Found.AGAINST}.get(estimated.answer, Found.NO_VERDICT)
    values = {name: getattr(estimated, name) for name in ("logged", "ips", "snips", "dr", "gain")}
    figures: JsonObject = {name: [one.value, one.low, one.high] for name, one in values.items()}
    figures |= {"effective": estimated.effective, "differing": estimated.differing, "unseen": estimated.unseen}
    return Finding(step=Step.OFF_POLICY, found=found, reason=estimated.reason, figures=figures)


def judge_shadow(watched: Watched | None, rules: Rules) -> Finding:
    """Judge what the challenger read beside the champion."""
    if watched is None:
        return Finding(step=Step.SHADOW, found=Found.PENDING, reason="It has not read anything beside the champion yet.")
    figures: JsonObject = {"hours": watched.hours, "requests": watched.requests, "differing": watched.differing, "failing": watched.failing}
    n = max(1, watched.requests)
    if watched.failing / n > rules.shadow_most_failing and watched.failing > 1:
        reason = f"It failed on {watched.failing} of {watched.requests} requests."
        return Finding(step=Step.SHADOW, found=Found.AGAINST, reason=reason, figures=figures)
    if watched.requests < rules.shadow_least:
        late = watched.hours >= rules.shadow_hours
        reason = f"{watched.requests} of {rules.shadow_least} requests read in {watched.hours:.1f} h."
        return Finding(step=Step.SHADOW, found=Found.NO_VERDICT if late else Found.PENDING, reason=reason, figures=figures)
    if watched.differing / n > rules.shadow_most_differing:
        reason = (
            f"It would route {watched.differing} of {watched.requests} requests otherwise; {rules.shadow_most_differing:.0%} are allowed."
        )
        return Finding(step=Step.SHADOW, found=Found.AGAINST, reason=reason, figures=figures)
    reason = f"It read {watched.requests} requests, {watched.differing} otherwise than the champion."
    return Finding(step=Step.SHADOW, found=Found.FOR, reason=reason, figures=figures)
