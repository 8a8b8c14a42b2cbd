"""The policy: how far down the cascade a request goes. Thresholds are fitted on held-out data and are part of the router version.

It knows probabilities only; what a rung costs or which agent serves is not its business.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from service.contracts.model import Contract, Probability

LOCAL_LM = "local"
MOST_OFFERED = 20  # intents that an LM chooses among, at most
NEVER = 1.01  # a probability from which nothing is acted on


class Step(StrEnum):
    """What the policy wants next."""

    REFUSE = "refuse"
    ACT = "act"
    ASK_LM = "ask_lm"
    CLARIFY = "clarify"


class Policy(Contract):
    """Thresholds of one router version.

    Attributes:
        refuse_above: out-of-scope score above which a request is refused; accepts `accepted_in_scope` of held-out in-scope requests.
        act_above: probability from which the student acts alone; the error among those is at most `risk_target` with 95 % confidence
            (fixed-sequence testing with exact binomial tails; Angelopoulos et al. 2021, Learn then Test).
        regions: the same by intent, where enough was seen of the requests that read so: some intents are sure long before others.
            1.01: never.
        given_back: intents that the student no longer answers alone, because the LM has come to disagree. Not part of a version.
        clarify_below: probability below which asking the user costs less than a wrong agent (Chow 1970), where no LM can help.
        several_above: how surely a clause has to read for an intent of its own, so that at most `risk_target` of requests with one intent
            are taken to have several, with 95 % confidence; above 1: never.
        says_no: labels whose own training texts are negations ("don't sync my phone"), so that a negation does not speak against them.
        trusted_lms: LM names that may decide what the student is unsure of. A small local LM has to earn its place by evidence;
            a provider's LM is taken unless evidence is recorded against it.
        kept_out_lms: LM names that evidence speaks against.
    """

    name: str = "selective-risk"
    refuse_above: Probability
    act_above: Annotated[float, Field(ge=0.0, le=NEVER)]
    regions: dict[str, Annotated[float, Field(ge=0.0, le=NEVER)]] = Field(default_factory=dict)
    given_back: Annotated[frozenset[str], Field(exclude=True)] = frozenset()
    clarify_below: Probability
    accepted_in_scope: Probability
    risk_target: Probability
    coverage: Probability
    several_above: Annotated[float, Field(ge=0.0, le=NEVER)] = NEVER
    says_no: tuple[str, ...] = ()
    shortlist: Annotated[int, Field(ge=2, le=50)] = 4
    trusted_lms: tuple[str, ...] = ()
    kept_out_lms: tuple[str, ...] = ()

    def lm_may_decide(self, lm: str) -> bool:
        """Say whether the LM may decide without being forced to by the caller."""
        if lm in self.kept_out_lms:
            return False
        return lm in self.trusted_lms or lm.partition("/")[0] != LOCAL_LM

    def offered(self, intent: str) -> int:
        """Return among how many of the likeliest intents an LM may choose: where the student has drifted, its order says little."""
        return MOST_OFFERED if intent in self.given_back else self.shortlist

    def act_from(self, intent: str) -> float:
        """Return the probability from which the student acts alone on an intent."""
        return NEVER if intent in self.given_back else self.regions.get(intent, self.act_above)

    def is_unsure(self, intent: str, probability: float) -> bool:
        """Say whether a label is likelier to be wrong than the risk target allows; where nothing is proven, nobody can tell."""
        return probability < min(self.act_from(intent), self.act_above) <= 1.0

    def is_sure(self, intent: str, probability: float) -> bool:
        """Say whether a label is as sure as most are that are acted on: enough where something else speaks for it too."""
        return probability >= min(self.act_from(intent), self.act_above) and intent not in self.given_back

    def step(
        self, intent: str, probability: float, oos_score: float, *, lm_ready: bool, described: bool = False, foreign: bool = False
    ) -> Step:
        """Choose the next step from the best label, its probability and the out-of-scope score.

        The student may not guess at a language that it does not read (`foreign`), and a label that it has no examples of (`described`) is
        the LM's to judge; without one the student takes it only when sure.
        """
        if foreign:
            return Step.ASK_LM if lm_ready else Step.REFUSE
        if oos_score > self.refuse_above:
            return Step.REFUSE
        if probability >= self.act_from(intent) and not (described and lm_ready):
            return Step.ACT
        if lm_ready:
            return Step.ASK_LM
        return Step.CLARIFY if probability < self.clarify_below or described else Step.ACT
