"""The plan: which agent meets which fault, how often, and how a plan's file is read. It knows no server."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from service.agents.faults.kinds import READ_BY, Fault
from service.catalog.files import did_you_mean, parse_file
from service.catalog.source import Document, NodePath, read_document
from service.contracts.model import Contract, JsonObject
from service.errors import ConfigurationError

EVERY_AGENT = "*"
MOST_HEADER = 500
REDIRECTS = (301, 302, 303, 307, 308)
AgentOrAll = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z][a-z0-9_]{0,63})$")]


def _header_text(value: str) -> str:
    if not value or len(value) > MOST_HEADER or not all("!" <= letter <= "~" for letter in value):
        raise PydanticCustomError("header_text", "it must be an address without spaces, in ASCII")
    return value


def _retry_after(value: JsonValue) -> JsonValue:
    is_text = isinstance(value, str) and 0 < len(value) <= MOST_HEADER and value.isascii() and value.isprintable()
    if value is None or is_text or (type(value) is int and value >= 0):
        return value
    raise PydanticCustomError("retry_after", "it must be seconds, or the header's text such as an HTTP date")


HeaderText = Annotated[str, AfterValidator(_header_text)]
RetryAfter = Annotated[JsonValue, AfterValidator(_retry_after)]


class PlannedFault(Contract):
    """One entry: what happens to which of an agent's dispatches.

    An entry counts the dispatches that reach it: those of its agent that no entry above it has struck. It leaves the first `after`
    alone and strikes among the next `times` (null: all that follow), each with the probability `share`. `seconds` is how long a slow
    fault takes (null: its own default), `retry_after` the header Retry-After (seconds or text), `status` and `location` the answer's.
    """

    agent: AgentOrAll
    fault: Fault
    after: Annotated[int, Field(ge=0)] = 0
    times: Annotated[int, Field(ge=1)] | None = None
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] | None = None
    retry_after: RetryAfter = None
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    location: HeaderText = "http://169.254.169.254/"
    framing: Literal["chunked", "length", "close"] = "chunked"
    recoverable: bool = False

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        misfits = _misfits(self.fault, {name: getattr(self, name) for name in self.model_fields_set})
        if misfits:
            raise ValueError(" ".join(misfits.values()))
        return self

    def __str__(self) -> str:
        """Return the entry as a person reads it."""
        which = "every dispatch" if self.times is None else f"{self.times} dispatches" if self.times > 1 else "1 dispatch"
        rest = f" after the first {self.after}" if self.after else ""
        chance = f", each with a chance of {self.share:g}" if self.share < 1.0 else ""
        return f"{'all agents' if self.agent == EVERY_AGENT else self.agent}: {self.fault}, {which}{rest}{chance}"


class FaultPlan(Contract):
    """All entries, in their order. The same seed strikes the same dispatches, counted in the order of their arrival."""

    seed: int = 0
    faults: tuple[PlannedFault, ...] = ()


class _PlanFile(Contract):
    seed: int = 0
    faults: tuple[JsonObject, ...]


def read_plan(path: Path, known_agents: Collection[str] = ()) -> FaultPlan:
    """Read a plan's file.

    Args:
        path: the YAML file.
        known_agents: the names that an entry may have besides `*`; empty: any.

    Raises:
        ConfigurationError: The file has problems; the message lists every one as `file:line: sentence`.
    """
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file. It should hold the faults that the agents act out: docs/drills.md.")
    document = read_document(Path(), str(path))
    file = parse_file(document, _PlanFile, document.data)
    entries = [_read_entry(document, path, known_agents) for path in document.entries("faults")]
    if document.problems or file is None:
        problems = sorted(set(document.problems))
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigurationError("\n".join([f"The plan of faults has {count} (its form is in docs/drills.md):", *map(str, problems)]))
    return FaultPlan(seed=file.seed, faults=tuple(entry for entry in entries if entry is not None))


def _read_entry(document: Document, path: NodePath, known_agents: Collection[str]) -> PlannedFault | None:
    """Return the entry at `path`, or None after reporting what is wrong with it.

    What is checked here is taken out of the data or replaced by something harmless, so that no problem is reported twice.
    """
    lines = {place[len(path) :]: line for place, line in document.lines.items() if place[: len(path)] == path}
    entry = Document(document.file, lines=lines, problems=document.problems)
    data = dict(value) if isinstance(value := document.get(*path), dict) else {}
    agent, fault = data.get("agent"), data.get("fault")
    if isinstance(agent, str) and known_agents and agent not in {EVERY_AGENT, *known_agents}:
        entry.report(("agent",), f"there is no agent '{agent}'. {did_you_mean(agent, list(known_agents))}")
        data["agent"] = EVERY_AGENT
    if isinstance(fault, str) and fault not in set(Fault):
        entry.report(("fault",), f"there is no fault '{fault}'. {did_you_mean(fault, list(Fault))}")
        data = {name: value for name, value in data.items() if name not in READ_BY} | {"fault": Fault.REFUSE.value}
    elif isinstance(fault, str):
        for name, sentence in _misfits(Fault(fault), data).items():
            entry.report((name,), sentence)
            data.pop(name, None)
            data |= {"status": 400} if (name, fault) == ("status", Fault.HTTP_STATUS) else {}
    return parse_file(entry, PlannedFault, data)


def _misfits(fault: Fault, fields: dict[str, JsonValue]) -> dict[str, str]:
    """Return what is wrong with an entry's fields for its fault, by field."""
    found = {
        name: f"'{name}' means nothing to {fault}; it is for {', '.join(sorted(READ_BY[name]))}."
        for name in fields
        if name in READ_BY and fault not in READ_BY[name]
    }
    status = fields.get("status")
    if fault is Fault.HTTP_STATUS and status is None:
        found["status"] = "http_status needs the field 'status', such as 418."
    if fault is Fault.REDIRECT and isinstance(status, int) and status not in REDIRECTS:
        found["status"] = f"'status' is {status}; a redirect has one of {', '.join(map(str, REDIRECTS))}."
    return found
