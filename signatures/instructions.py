"""Instructions beside those of the signatures: a plain one from the catalogue, and the sentence that none may lack."""

from collections.abc import Mapping

import dspy

from signatures.intent import IntentClassification
from signatures.response import ResponseSynthesis
from signatures.routing import AgentRouting


def _last_sentence(signature: type[dspy.Signature]) -> str:
    return " ".join(signature.instructions.split()).rpartition(". ")[2]


ANSWERS = {"intent": "intent", "routing": "primary_agent", "synthesis": "response_text"}  # an output field of each signature of its own
GUARDS = {
    "intent": _last_sentence(IntentClassification),
    "primary_agent": _last_sentence(AgentRouting),
    "response_text": _last_sentence(ResponseSynthesis),
}


def guarded(instructions: str, answers: Mapping[str, object]) -> str:
    """Return instructions that say what users' text is: data. Whoever words new ones (an optimizer, an LM) may have left it out.

    Args:
        instructions: of a signature.
        answers: its output fields, which tell which signature it is.
    """
    guard = next((text for field, text in GUARDS.items() if field in answers), None)
    return instructions if guard is None or guard in " ".join(instructions.split()) else f"{instructions.rstrip()} {guard}"


def from_catalogue(question: str, descriptions: Mapping[str, str]) -> str:
    """Return instructions that name every label with its description; a model that has not learned the names needs to be told."""
    return f"{question} " + " ".join(f"{name}: {text.rstrip('.')}." for name, text in descriptions.items())


def instructions_from(intents: Mapping[str, str], agents: Mapping[str, str]) -> dict[str, str]:
    """Return instructions by signature name, from the catalogue's descriptions of intents and of agents."""
    return {
        "intent": from_catalogue("Decide what the person wants done.", intents),
        "routing": from_catalogue("Choose the agent whose work the person wants done.", agents),
    }
