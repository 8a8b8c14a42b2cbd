"""What the promotion court works with: its steps, the rules that an operator sets, findings and verdicts. Knows no statistics."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from service.contracts.model import Contract, Instant, JsonObject
from service.contracts.optimization import Ruling as Ruling  # a word of the court that requests carry, too


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
    significance: Annotated[float, Field(gt=0.0, le=0.5)] = 0.04
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
