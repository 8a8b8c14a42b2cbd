"""The job on an LM's programs, from the command line: opens the LM, runs the job or estimates it, and closes the LM."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from optimizers.order import SYNTHESIS, CannotBeOptimized, NotDone, Order, Wish
from optimizers.progress import shown
from service.adapters.local_lm import PROVIDER
from service.catalog.loader import load_catalog
from service.cores import cores
from service.routing.policy import LOCAL_LM
from service.settings import STATE, Settings

if TYPE_CHECKING:
    from optimizers.case import Progress
    from optimizers.program_job import Estimate
    from optimizers.routing_job import Hearing
    from optimizers.search_watch import Searched
    from optimizers.subject import Endpoints
    from service.catalog.model import Catalog
    from service.routing.encoder import Encoder

ANSWERS = STATE / "optimize"
T = TypeVar("T")


def improve_programs(settings: Settings, order: Order, wish: Wish, err: Console) -> "tuple[Hearing, Searched]":
    """Run the job; see `optimizers.program_job.optimize_programs` for errors.

    Raises:
        NotDone: the LM failed too often.
    """

    def job(endpoints: "Endpoints", encoder: "Encoder", catalog: "Catalog", progress: "Progress") -> "tuple[Hearing, Searched]":
        from optimizers.lm_meter import LMTooUnreliable
        from optimizers.program_job import optimize_programs

        try:
            return optimize_programs(order, wish, endpoints, encoder, catalog, progress)
        except LMTooUnreliable as exc:
            raise NotDone(f"The run is void, for {exc} Nothing was registered. What it answered is kept for the next run.") from exc

    return asyncio.run(_with_lm(settings, wish, job, err))


def estimate(settings: Settings, order: Order, wish: Wish, err: Console) -> "Estimate":
    """Say what the job would ask for; see `optimizers.program_job.estimate_programs` for errors."""

    def job(endpoints: "Endpoints", encoder: "Encoder", catalog: "Catalog", progress: "Progress") -> "Estimate":
        from optimizers.program_job import estimate_programs

        return estimate_programs(order, wish, endpoints, encoder, catalog, progress)

    return asyncio.run(_with_lm(settings, wish, job, err))


async def _with_lm(settings: Settings, wish: Wish, job: "Callable[[Endpoints, Encoder, Catalog, Progress], T]", err: Console) -> T:
    if wish.signature == SYNTHESIS and (settings.lm_strong or settings.lm) == LOCAL_LM:
        raise CannotBeOptimized(
            "A small local language model never puts answers into words: the service joins the findings itself. "
            "Set POINTSMAN_LM_STRONG, POINTSMAN_LM or --lm to another one."
        )
    from service.adapters.lm_client import open_endpoints  # DSPy takes a second to import, scikit-learn more

    async with open_endpoints(settings, threads=cores()) as (light, primary, strong):
        from optimizers.response_cache import identify
        from optimizers.subject import Endpoints

        file = settings.lm_gguf.stat() if PROVIDER in (settings.lm, settings.lm_light, settings.lm_strong) else None
        server = settings.lm_api_base or (f"{settings.lm_gguf.name} {file.st_size} {file.st_mtime_ns}" if file else "")
        answers: Path = ANSWERS / identify(light.model, primary.model, strong.model, server)
        return await asyncio.to_thread(_run, settings, job, Endpoints(light, primary, strong, answers), err)


def _run(settings: Settings, job: "Callable[[Endpoints, Encoder, Catalog, Progress], T]", endpoints: "Endpoints", err: Console) -> T:
    from service.routing.encoder import Encoder

    encoder, catalog = Encoder(settings.encoder, threads=cores()), load_catalog(settings.catalog)
    with shown(err) as progress:
        return job(endpoints, encoder, catalog, progress)
