"""Where commands print for people."""

import os
import sys

from rich.console import Console

WIDE = 160  # columns where nobody looks: a table in a file or a pipe is not cut at a terminal's width


def terminal(*, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error."""
    stream = sys.stderr if stderr else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if known else WIDE)
