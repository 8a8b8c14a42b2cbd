"""The promotion court: what a challenger has to show before it serves, in order, and what each finding leads to. Pure.

Each step looks at evidence that others gathered and says what it found. A step that is required must find for the challenger; an advisory
one may not find against it; one that is skipped is not asked. The first step that stops the challenger ends the hearing, and the first one
whose evidence is still being gathered suspends it. Nothing is ever promoted on what was chosen on: the test was touched once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizers.off_policy import Answer, OffPolicy
from optimizers.paired import Paired, worse_slices
from optimizers.ruling import Finding, Found, Rules, Ruling, Step, Weight
from service.contracts.model import JsonObject


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both routers on the untouched test.

    Attributes:
        tried: what each chose for which request.
        reached: where each would have called the right agent, or refused rightly, without asking back; None where that is not known.
    """

    paired: Paired
    slices: Mapping[str, Paired]
    tried: Sequence["Tried"] = ()
    reached: Paired | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """One request of the test: the right agent, and what each router chose; nobody is ""."""

    text: str
    right: str
    champion: str
    challenger: str


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
    """Judge the paired test: better over all, in no slice that counts worse, and not by asking back instead."""
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
    reached = compared.reached
    if reached is not None:
        figures |= {"reached_at_once": {"champion": reached.champion, "challenger": reached.challenger, "p_worse": reached.p_worse}}
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
    if reached is not None and reached.p_worse <= rules.slice_significance:
        less = f"{reached.challenger:.1%} against {reached.champion:.1%} reach the right agent at once, for it asks back about more"
        return Finding(step=Step.TEST, found=Found.AGAINST, reason=f"{less}; its choices: {said}.", figures=figures)
    return Finding(step=Step.TEST, found=Found.FOR, reason=f"Better: {said}.", figures=figures)


def judge_off_policy(estimated: OffPolicy | None) -> Finding:
    """Judge what the log says of the challenger's choices."""
    if estimated is None:
        return Finding(step=Step.OFF_POLICY, found=Found.NO_VERDICT, reason="Too little was explored and rewarded for the log to tell.")
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
