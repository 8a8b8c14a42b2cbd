"""What the command line reads before it asks anybody."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from service.cli import _turn, app
from service.contracts.query import ConversationTurn
from service.terminal import WIDE


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("user: Did it?", ConversationTurn(role="user", content="Did it?")),
        ("Assistant:Yes: by 0.8.", ConversationTurn(role="assistant", content="Yes: by 0.8.")),
        ("user:", ConversationTurn(role="user", content="")),
    ],
    ids=["plain", "other case, more colons", "nothing said"],
)
def test_a_turn_is_read_with_who_said_it(text: str, turn: ConversationTurn) -> None:
    """The first colon ends the role."""
    assert _turn(text) == turn


@pytest.mark.parametrize("text", ["Did it?", "", "note: Did it?", "system: Did it?", ": Did it?", "user: \ud800"], ids=ascii)
def test_a_turn_of_nobody_is_refused(text: str) -> None:
    """Nobody's word is taken for the user's."""
    with pytest.raises(typer.BadParameter, match='must begin with "user:" or "assistant:"'):
        _turn(text)


@pytest.mark.parametrize("command", ["ask", "route"])
def test_history_that_cannot_be_read_is_wrong_usage(command: str) -> None:
    """Exit code 2, before anything is asked or loaded."""
    done = CliRunner().invoke(app, [command, "and in the Midwest?", "--history", "Did it?"])

    assert done.exit_code == 2
    assert "--history" in done.output


@pytest.mark.parametrize(("environment", "width"), [({}, WIDE), ({"COLUMNS": "60"}, 60)], ids=["a pipe", "somebody says how wide"])
def test_a_table_in_a_pipe_is_not_cut(environment: dict[str, str], width: int) -> None:
    """Rich takes 80 columns where it cannot know."""
    code = "from service.terminal import terminal; print(terminal().width, terminal(stderr=True).width)"
    unset = {name: value for name, value in os.environ.items() if name != "COLUMNS"}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unset | environment)

    assert done.stdout.split() == [str(width)] * 2
