"""What the tier 0 agents hand to each other, and how each reads it: an earlier agent's output is untrusted and is validated."""

from datetime import date
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from service.agents.finding import AgentFailure
from service.agents.training.inputs import FLAGS, LABELS, MEASURES, NUMBERS, WINDOWS
from service.agents.training.metrics import METRICS
from service.agents.training.target import TARGETS, Target, Task
from service.contracts.dispatch import AgentDispatch

Family = Literal["linear", "decision_tree", "k_nearest", "random_forest", "hist_gradient_boosting", "neural_network"]
FAMILIES: tuple[Family, ...] = ("linear", "decision_tree", "k_nearest", "random_forest", "hist_gradient_boosting", "neural_network")
"""From the simplest to the least simple: the order of the one-standard-error rule."""
MOST_TRIALS = 24
LONGEST_HORIZON = 13
Name = Annotated[str, Field(max_length=60)]
Names = Annotated[tuple[Name, ...], Field(max_length=80)]
_INPUTS = {f"{measure}_{weeks}w" for measure in MEASURES for weeks in WINDOWS} | {*NUMBERS, *FLAGS, *LABELS}

Handed = TypeVar("Handed", bound="HandedOver")


class HandedOver(BaseModel):
    """A part of an earlier agent's output."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class FixedParameters(HandedOver):
    """Parameters that the text fixes; None: the search decides."""

    trees: Annotated[int, Field(ge=10, le=300)] | None = None
    depth: Annotated[int, Field(ge=1, le=12)] | None = None
    learning_rate: Annotated[float, Field(ge=0.001, le=1.0)] | None = None


class TrainingScope(HandedOver):
    """What is to be modelled, on which HCPs and weeks, from which inputs, and how it is judged.

    Weeks are named by the Sunday on which they end. `inputs` are columns, or labels that become columns. `alias` is the alias
    that the registered version gets; None: it gets none.
    """

    target: Literal["conversion", "lapse", "growth", "trx_demand", "nrx_demand", "market_share", "speaker_attendance", "sample_demand"]
    task: Task
    brands: Annotated[Names, Field(min_length=1)]
    regions: Annotated[Names, Field(min_length=1)]
    specialties: Names = ()
    settings: Names = ()
    horizon_weeks: Annotated[int, Field(ge=1, le=LONGEST_HORIZON)]
    history_weeks: Literal[4, 13, 26]
    first_week: date
    last_week: date
    inputs: Annotated[Names, Field(min_length=1)]
    families: Annotated[tuple[Family, ...], Field(min_length=1, max_length=6)]
    fixed: FixedParameters = FixedParameters()
    trials: Annotated[int, Field(ge=0, le=MOST_TRIALS)] = 0
    early_stopping: Annotated[int, Field(ge=1, le=200)] | None = None
    class_weights: bool = False
    calibration: Literal["sigmoid", "isotonic"] | None = None
    folds: Annotated[int, Field(ge=2, le=10)] = 5
    metric: Name
    alias: Literal["staging"] | None = "staging"

    @field_validator("inputs")
    @classmethod
    def _are_columns(cls, inputs: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in inputs if name not in _INPUTS]:
            raise ValueError(f"unknown inputs: {', '.join(unknown[:5])}")
        if len(set(inputs)) < len(inputs):
            raise ValueError("an input is named twice")
        return inputs

    @model_validator(mode="after")
    def _fits_together(self) -> "TrainingScope":
        if self.task != TARGETS[self.target].task:
            raise ValueError(f"{self.target} is a {TARGETS[self.target].task} target, not {self.task}")
        if self.metric not in METRICS or METRICS[self.metric].task != self.task:
            raise ValueError(f"{self.metric} does not judge {self.task}")
        if self.first_week > self.last_week:
            raise ValueError("the first week lies after the last")
        return self

    @property
    def wanted(self) -> Target:
        """The target with its measure."""
        return TARGETS[self.target]


class Dataset(HandedOver):
    """What identifies prepared data: the hash of their content and their size."""

    id: Annotated[str, Field(pattern=r"^ds-[0-9a-f]{16}$")]
    rows: Annotated[int, Field(ge=0)]


class QualityVerdict(HandedOver):
    """The part of a QC report that a later agent cites."""

    passed: bool
    share_met: Annotated[float, Field(ge=0.0, le=1.0)]


class Selected(HandedOver):
    """The family and parameters that were selected, and their cross-validated score."""

    family: Family
    parameters: dict[Name, int | float | str | None] = Field(default_factory=dict, max_length=10)
    score: float | None = None
    standard_error: Annotated[float, Field(ge=0.0)] | None = None
    folds: Annotated[int, Field(ge=2, le=10)] | None = None


def handed_over(dispatch: AgentDispatch, key: str, model: type[Handed]) -> Handed | None:
    """Return what an earlier agent left in the context, or None where nothing lies there.

    Raises:
        AgentFailure: It does not fit the model (`invalid_input`); the message names the fields.
    """
    value = dispatch.payload.context.get(key)
    if value is None:
        return None
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        faults = "; ".join(f"{'.'.join(str(part) for part in one['loc']) or key}: {one['msg']}" for one in exc.errors()[:4])
        raise AgentFailure("invalid_input", f"The {key} that was handed over does not fit: {faults}.") from exc
