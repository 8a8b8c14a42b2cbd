"""`optimize --signature ... ` with an LM: opens it, runs the job on its programs, and shows what came of it."""

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from optimizers.order import Order, Wish
from optimizers.progress import shown
from service.adapters.local_lm import PROVIDER
from service.catalog.loader import load_catalog
from service.errors import ConfigurationError, StoreUnavailable
from service.settings import STATE, Settings

if TYPE_CHECKING:
    from optimizers.program_job import Endpoints

ANSWERS = STATE / "optimize"
out, err = Console(), Console(stderr=True)


def improve_programs(settings: Settings, order: Order, wish: Wish, *, dry_run: bool, as_json: bool) -> None:
    """Run the job, or with `dry_run` say what it would ask for.

    Raises:
        typer.Exit: with 2 it could not begin; with 1 the LM failed too often.
    """
    try:
        asyncio.run(_with_lm(settings, order, wish, dry_run=dry_run, as_json=as_json))
    except (ValueError, FileNotFoundError, ConfigurationError, StoreUnavailable) as exc:
        raise _exit(str(exc), 2) from exc


async def _with_lm(settings: Settings, order: Order, wish: Wish, *, dry_run: bool, as_json: bool) -> None:
    from service.adapters.lm_client import open_endpoints  # DSPy takes a second to import, scikit-learn more

    async with open_endpoints(settings, threads=os.cpu_count()) as (light, primary, strong):
        from optimizers.program_job import Endpoints
        from optimizers.response_cache import identify

        file = settings.lm_gguf.stat() if PROVIDER in (settings.lm, settings.lm_light, settings.lm_strong) else None
        server = settings.lm_api_base or (f"{settings.lm_gguf.name} {file.st_size} {file.st_mtime_ns}" if file else "")
        answers: Path = ANSWERS / identify(light.model, primary.model, strong.model, server)
        endpoints = Endpoints(light, primary, strong, answers)
        await asyncio.to_thread(_run, settings, order, wish, endpoints, dry_run=dry_run, as_json=as_json)


def _run(settings: Settings, order: Order, wish: Wish, endpoints: "Endpoints", *, dry_run: bool, as_json: bool) -> None:
    from optimizers.hearing import show_hearing, show_search
    from optimizers.lm_meter import LMTooUnreliable
    from optimizers.program_job import estimate_programs, optimize_programs
    from service.routing.encoder import Encoder

    encoder, catalog = Encoder(settings.encoder, threads=os.cpu_count() or 1), load_catalog(settings.catalog)
    started = time.monotonic()
    with shown(err) as progress:
        if dry_run:
            expected = estimate_programs(order, wish, endpoints, encoder, catalog, progress)
        else:
            try:
                heard, searched = optimize_programs(order, wish, endpoints, encoder, catalog, progress)
            except LMTooUnreliable as exc:
                raise _exit(f"The run is void, for {exc} Nothing was registered. What it answered is kept for the next run.", 1) from exc
    if dry_run:
        if as_json:
            out.print_json(data=expected.as_json())
        else:
            out.print(expected.sentence(wish), highlight=False, soft_wrap=True)
        return
    if as_json:
        out.print_json(data=heard.as_json() | {"search": searched.as_json()})
        return
    show_search(out, searched)
    show_hearing(out, heard, time.monotonic() - started)


def _exit(message: str, code: int) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(code)
