"""What the command line reads before it asks anybody."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from optimizers.cli import app as optimize_app
from service.cli import _turn, app
from service.contracts.query import ConversationTurn
from service.terminal import WIDE, replaced, run_program
from service.workers import LONGEST_WORK_SECONDS


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


def test_agents_that_are_told_to_end_have_the_time_of_their_longest_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a training of a quarter of an hour gets its result."""
    given: dict[str, object] = {}
    monkeypatch.setattr("service.logs.configure_logs", lambda _: None)
    monkeypatch.setattr("uvicorn.run", lambda _, **options: given.update(options))

    done = CliRunner().invoke(app, ["agents", "--port", "0"])

    assert (done.exit_code, given["timeout_graceful_shutdown"]) == (0, LONGEST_WORK_SECONDS)


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


def raising(error: Exception) -> Callable[[], object]:
    """Return a program that meets an error."""

    def program() -> object:
        raise error

    return program


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError(28, "No space left on device"), "No space left"), (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates"), "UTF-8")],
    ids=["a full disk", "bytes that are no text"],
)
def test_what_cannot_be_written_ends_a_command_with_a_sentence(
    error: Exception, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and no traceback."""
    monkeypatch.setattr("service.terminal.quiet_at_exit", lambda: None)  # it would close what the test reads

    with pytest.raises(SystemExit) as ended:
        run_program(raising(error))

    assert ended.value.code == 2
    assert said in capfd.readouterr().err


def test_a_file_that_a_link_leads_to_is_replaced_there(tmp_path: Path) -> None:
    """And what is no plain file is written to as it is."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("before")
    (tmp_path / "link").symlink_to("real/file")

    with replaced(tmp_path / "link") as part:
        part.write_text("after")
    with replaced(Path("/dev/null")) as device, replaced(Path("-")) as standard_output:
        pass

    assert ((tmp_path / "real/file").read_text(), (tmp_path / "link").is_symlink()) == ("after", True)
    assert (device, standard_output) == (Path("/dev/null"), Path("-"))
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["file"]


RULES: dict[str, tuple[str, str]] = {
    "said twice": ("test: required\ntest: skipped\n", "rules.yaml:2"),
    "empty": ("", "must be a mapping"),
    "cut off": ("null\n", "must be a mapping"),
    "deep": ("[" * 20_000, "rules.yaml:1"),
    "misspelled": ("significanse: 0.01\n", "rules.yaml:1: significanse"),
}


@pytest.mark.parametrize(("text", "said"), RULES.values(), ids=RULES.keys())
def test_rules_that_may_not_be_meant_so_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """A file that is cut off must not mean the defaults, nor one that says a thing twice the last of them."""
    (tmp_path / "rules.yaml").write_text(text)

    done = CliRunner().invoke(optimize_app, ["--signature", "routing", "--rules", str(tmp_path / "rules.yaml")])

    assert (done.exit_code, said in done.output) == (2, True), done.output
