"""What exceptions say stays out of the log, since a parser quotes what it cannot read; where they came from is in it."""

import json
import subprocess
import sys

import pytest

CODE = """
import logging
from service.logs import configure_logs
configure_logs("{level}")
try:
    try:
        int("zanzibar")
    except ValueError as exc:
        exc.add_note("zanzibar")
        group = ExceptionGroup("zanzibar", [KeyError("zanzibar"), exc])
        logging.getLogger("any").error("they_broke", exc_info=group)
        raise RuntimeError("zanzibar") from exc
except RuntimeError:
    logging.getLogger("any").exception("it_broke")
"""


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_an_exception_is_told_without_its_words_above_debug(level: str) -> None:
    """Of it, its causes, its notes and those of a group there are type, file and line."""
    done = subprocess.run([sys.executable, "-c", CODE.format(level=level)], capture_output=True, text=True, check=True)

    many, one = map(json.loads, done.stderr.splitlines())
    assert ("zanzibar" in done.stderr) is (level == "DEBUG")
    assert [raised["exc_type"] for raised in one["exception"]] == ["RuntimeError", "ValueError"]
    assert {group[0]["exc_type"] for group in many["exception"][0]["exceptions"]} == {"KeyError", "ValueError"}
    assert one["exception"][0]["frames"][-1]["lineno"] > 0
