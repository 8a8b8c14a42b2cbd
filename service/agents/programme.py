"""The programmes whose effect can be asked for, what people call them, and which one a dispatch means."""

from dataclasses import dataclass

from service.agents.finding import AgentFailure
from service.agents.kpi import KPIS, Kpi, find_kpi, mentioned_kpi, normal_form
from service.agents.scope import context_text, entity_values, question_of, quoted
from service.contracts.dispatch import AgentDispatch
from service.contracts.query import EntityType


@dataclass(frozen=True, slots=True)
class Programme:
    """One programme: `name` is its column in the data."""

    name: str
    label: str
    aliases: tuple[str, ...]

    def forms(self) -> set[str]:
        """Return every name of the programme in normal form."""
        return {normal_form(known) for known in (self.name, self.label, *self.aliases)}


PROGRAMMES = (
    Programme(
        "call_programme",
        "targeted call programme",
        (
            "call program",
            "call plan",
            "hcp engagement increase",
            "hcp engagement",
            "engagement",
            "rep visits",
            "rep visit",
            "sales visits",
            "visits",
            "calls",
            "call",
            "detailing",
            "field force",
        ),
    ),
    Programme("email_campaign", "email campaign", ("email campaigns", "emails", "email", "digital campaign", "digital")),
    Programme(
        "speaker_programme", "speaker programme", ("speaker program", "speaker programs", "speaker events", "speaker event", "speaker")
    ),
    Programme("sample_programme", "sample programme", ("sample program", "samples", "sampling", "sample")),
)


def resolve_treatment(dispatch: AgentDispatch) -> tuple[Programme, str, str | None]:
    """Return the programme, the caller's own name for it, and a caveat if it was assumed.

    Raises:
        AgentFailure: The context names a treatment that the data do not have.
    """
    named = context_text(dispatch, "treatment")
    if named:
        form = normal_form(named)
        exact = next((one for one in PROGRAMMES if form in one.forms()), None)
        found = exact or _mentioned(named)
        if found is None:
            available = ", ".join(one.name for one in PROGRAMMES)
            raise AgentFailure("missing_data", f"The data have no treatment {quoted(named)}. Available: {available}.")
        return found, found.name if exact is None else named[:80], None
    if mentioned := _mentioned(question_of(dispatch)):
        return mentioned, mentioned.name, None
    default = PROGRAMMES[0]
    return default, default.name, f"No treatment was named; the {default.label} was taken."


def resolve_outcome(dispatch: AgentDispatch) -> tuple[Kpi, str, str | None]:
    """Return the outcome, the caller's own name for it, and a caveat if it was assumed.

    Context goes before entities, entities before the question's text. A KPI that is itself a treatment (calls, emails) is
    passed over: in "do emails raise TRx" it is TRx that is asked for.

    Raises:
        AgentFailure: The outcome is not in the data, or is not something that a programme acts on.
    """
    outcomes = tuple(kpi for kpi in KPIS if kpi.is_outcome)
    available = ", ".join(kpi.name for kpi in outcomes)
    said = context_text(dispatch, "outcome")
    named = [said] if said else [name for name in entity_values(dispatch, EntityType.KPI) if not _is_treatment(name)]
    found = [kpi for name in named if (kpi := find_kpi(name)) is not None and kpi.is_outcome]
    if found:
        return found[0], said[:80] or found[0].name, None
    if named:
        raise AgentFailure("missing_data", f"{quoted(named[0])} is not an outcome in the data. Available: {available}.")
    mentioned = mentioned_kpi(question_of(dispatch), outcomes)
    chosen = mentioned or outcomes[0]
    return chosen, chosen.name, None if mentioned else f"No outcome was named; {chosen.label} was taken."


def _is_treatment(name: str) -> bool:
    kpi = find_kpi(name)
    return (kpi is not None and not kpi.is_outcome) or any(normal_form(name) in one.forms() for one in PROGRAMMES)


def _mentioned(text: str) -> Programme | None:
    padded = f" {normal_form(text)} "
    hits = [(len(form), one) for one in PROGRAMMES for form in one.forms() if f" {form} " in padded]
    return max(hits, key=lambda hit: hit[0])[1] if hits else None
