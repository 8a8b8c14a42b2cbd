"""One signature made better, for the command line or for a pending request: by the job that can, with what came of it to show."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from optimizers.order import Order, Wish
from optimizers.programs_cli import improve_programs
from optimizers.progress import shown
from service.catalog.loader import load_catalog
from service.contracts.model import JsonObject
from service.cores import cores
from service.settings import Settings

if TYPE_CHECKING:
    from optimizers.routing_job import Hearing
    from optimizers.search_watch import Searched


@dataclass(frozen=True, slots=True)
class Improved:
    """A challenger, what the court made of it, and the search that it comes from, where an LM's programs were searched."""

    heard: "Hearing"
    searched: "Searched | None"
    seconds: float

    def as_json(self) -> JsonObject:
        """Return it for programs."""
        return self.heard.as_json() | ({} if self.searched is None else {"search": self.searched.as_json()})

    def show(self, out: Console) -> None:
        """Print it for people."""
        from optimizers.hearing import show_hearing, show_search

        if self.searched is not None:
            show_search(out, self.searched)
        show_hearing(out, self.heard, self.seconds)


def improve(settings: Settings, order: Order, wish: Wish | None, err: Console) -> Improved:
    """Make a challenger and let the court decide; without a wish of programs it is the student that is fitted. `err` shows progress.

    Raises:
        NotDone: the LM failed too often, or the champion changed meanwhile.
        ValueError, FileNotFoundError, ConfigurationError, StoreUnavailable: as `optimizers.case.open_case`.
    """
    started = time.monotonic()
    if wish is None:
        heard, searched = _improve_student(settings, order, err), None
    else:
        heard, searched = improve_programs(settings, order, wish, err)
    return Improved(heard, searched, time.monotonic() - started)


def _improve_student(settings: Settings, order: Order, err: Console) -> "Hearing":
    from optimizers import routing_job  # scikit-learn and SciPy take seconds to import
    from service.routing.encoder import Encoder

    with shown(err) as progress:
        encoder = Encoder(settings.encoder, threads=cores())
        return routing_job.optimize_routing(order, encoder, load_catalog(settings.catalog), progress)
