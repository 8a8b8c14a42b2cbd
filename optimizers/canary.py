"""What the court finds of a canary: the requests that it served beside the champion's. Pure."""

from optimizers.ruling import Finding, Found, Rules, Step
from service.routing.arms import Arm, compare_arms


def judge_canary(champion: Arm, challenger: Arm, hours: float, rules: Rules) -> Finding:
    """Judge the challenger's share of the traffic, `hours` after it began."""
    worse, figures = compare_arms(champion, challenger, rules.canary_most_worse)
    figures |= {"hours": hours, "requests": challenger.requests}
    if worse:
        return Finding(step=Step.CANARY, found=Found.AGAINST, reason=worse, figures=figures)
    if challenger.requests < rules.canary_least:
        late = hours >= rules.canary_hours
        reason = f"{challenger.requests} of {rules.canary_least} requests served in {hours:.1f} h."
        return Finding(step=Step.CANARY, found=Found.NO_VERDICT if late else Found.PENDING, reason=reason, figures=figures)
    reason = f"It served {challenger.requests} requests and is not worse in errors, fallbacks or reward."
    return Finding(step=Step.CANARY, found=Found.FOR, reason=reason, figures=figures)
