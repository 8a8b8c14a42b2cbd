"""How far the labels that a router is fitted on cover the catalogue's intents, in words. Knows names only."""

from collections.abc import Collection, Iterable, Sequence

NAMED = 10  # a catalogue may have thousands


def without_examples(intents: Iterable[str], labels: Collection[str]) -> tuple[str, ...]:
    """Return the intents that are no labels, in their order."""
    known = set(labels)
    return tuple(intent for intent in intents if intent not in known)


def say_described_only(intents: Sequence[str]) -> str:
    """Say how intents without examples are served."""
    return f"Without labelled requests, so told by their descriptions only (docs/own-agents.md): {name_some(intents)}."


def name_some(names: Sequence[str]) -> str:
    """Return the first names as a list, with the number of the others."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")
