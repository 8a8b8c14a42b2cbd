"""Progress of a long command: a spinner on a terminal, plain lines with seconds elsewhere. Both go to the error stream."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def shown(console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that says what is being done now."""
    started = time.monotonic()
    console = Console(file=console.file)  # the stream as it is now: meanwhile what libraries print may be led elsewhere
    with console.status("starting") as status:

        def say(step: str) -> None:
            status.update(step)
            if not console.is_terminal:
                console.print(f"[{time.monotonic() - started:5.1f} s] {step}", markup=False, highlight=False)

        yield say
