"""How many cores a program takes for its own."""

import os
import subprocess
import sys

import pytest

from service.cores import VARIABLE, cores


@pytest.mark.parametrize(("said", "meant"), [("3", 3), ("4,2", 4), (" 2 ", 2)])
def test_what_is_said_counts(monkeypatch: pytest.MonkeyPatch, said: str, meant: int) -> None:
    """A list gives one number for each nesting level: the first one is meant."""
    monkeypatch.setenv(VARIABLE, said)

    assert cores() == meant


@pytest.mark.parametrize("said", ["", "0", "-1", "all", ",2"])
def test_what_is_no_number_says_nothing(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """As OpenMP ignores it."""
    monkeypatch.setenv(VARIABLE, said)

    assert cores() == len(os.sched_getaffinity(0))


def test_a_process_that_is_held_to_one_core_knows_it() -> None:
    """A real process on one core of this machine."""
    program = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); from service.cores import cores; print(cores())"
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}

    done = subprocess.run([sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "1\n"
