"""What every boundary type shares: frozen, closed to unknown fields, and finite numbers only."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue


class Contract(BaseModel):
    """A boundary type: immutable, rejects unknown fields, rejects NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null")


def _require_zone(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must carry a time zone, such as 2026-01-31T12:00:00Z")
    return value


JsonObject = dict[str, JsonValue]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Milliseconds = Annotated[int, Field(ge=0)]
Instant = Annotated[datetime, AfterValidator(_require_zone)]
