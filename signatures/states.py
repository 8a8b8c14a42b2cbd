"""Optimized predictor states as a router version stores them: what DSPy dumps of a predictor, and what a program adds beside it."""

from typing import Any

import dspy

from service.contracts.model import JsonObject


def load_state(program: dspy.Module, name: str, programs: JsonObject) -> dict[str, Any]:
    """Load the state of the predictor `name` into a program, and return it; empty where there is none.

    Check the fingerprint first (`signatures.artifact`): DSPy loads a state of other fields without complaint. An LM named in a state is
    ignored: a file never chooses whom the service talks to.

    Raises:
        ValueError: it is not a predictor's state.
    """
    state = programs.get(name)
    if state is None:
        return {}
    if not isinstance(state, dict):
        raise unreadable(name, TypeError("not an object"))
    try:
        getattr(program, name).load_state({**state, "lm": None, "traces": [], "train": []})
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise unreadable(name, exc) from exc
    return state


def unreadable(name: str, exc: Exception) -> ValueError:
    """Return the error of a state that cannot be loaded."""
    return ValueError(f"the state of program {name!r} cannot be loaded: {exc!r}")
