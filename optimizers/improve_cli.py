"""`optimize --signature`, `--pending` and `--dry-run`: run under the lease, shown, and turned into exit codes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from optimizers.hearing import show_verdict
from optimizers.improve import improve
from optimizers.order import AGAIN, CANNOT, WRONG, NotDone, Order, Wish, exit_code
from optimizers.programs_cli import estimate
from service.adapters.sql_engine import normalise, require_there
from service.contracts.optimization import OptimizationRequest, RequestStatus
from service.errors import ConfigurationError
from service.settings import Settings
from service.terminal import terminal

if TYPE_CHECKING:
    from optimizers.routing_job import Hearing
    from optimizers.ruling import Verdict
    from service.adapters.job_lease import Lease
    from service.adapters.optimization_jobs import OptimizationJobs

out, err = terminal(), terminal(stderr=True)


def improve_one(
    settings: Settings, order: Order, signature: str, wish: Wish | None, make_first: Callable[[], None], *, as_json: bool
) -> None:
    """Make one signature better, and show what came of it; `make_first` makes the first router version where there is none.

    Raises:
        typer.Exit: with 2 data or set-up cannot be used; with 1 another job is at work, database or registry is away, the LM failed, or
            the champion changed.
    """
    from service.adapters.mlflow_registry import MlflowRegistry

    with _alone(settings, f"optimize --signature {signature}"):
        if MlflowRegistry(settings.mlflow_uri).champion_number() is None:  # raises while it is away: nothing is fitted in vain
            make_first()
        improved = improve(settings, order, wish, err)
    if as_json:
        out.print_json(data=improved.as_json())
    else:
        improved.show(out)


def carry_out_pending(settings: Settings, order: Order, wish_for: Callable[[str], Wish | None], most: int | None, *, as_json: bool) -> None:
    """Carry out the requests that wait, and show what came of each; `wish_for` says how a signature is made better.

    Before that the court looks again at the challenger that is tried beside the champion.

    Raises:
        typer.Exit: with 1 one of them failed, another job is at work, or database or registry is away; with 2 one cannot be used.
    """
    from optimizers.pending import carry_out

    def work(request: OptimizationRequest) -> "Hearing":
        err.print(f"{_name(request)}, attempt {request.attempts}", highlight=False, markup=False)
        improved = improve(settings, order, wish_for(request.signature_name.value), err)
        if not as_json:
            improved.show(out)
        return improved.heard

    try:
        require_there(normalise(settings.database_url))
    except CANNOT as exc:  # such as no log yet: no attempt makes one
        raise _exit(str(exc), WRONG) from exc
    with _alone(settings, "optimize --pending") as (jobs, lease):
        tried = hear_again(settings)
        ended = carry_out(jobs, lease, work, most)
    if as_json:
        verdict = tried.model_dump(mode="json") if tried is not None else None
        out.print_json(data={"tried": verdict, "requests": [one.model_dump(mode="json") for one in ended]})
    else:
        if tried is not None:
            show_verdict(out, tried)
        _show(ended)
    if any(one.status is not RequestStatus.DONE for one in ended):
        raise typer.Exit(AGAIN)


def hear_again(settings: Settings) -> "Verdict | None":
    """Let the court look at the challenger that is tried beside the champion, if there is one.

    Raises:
        ConfigurationError: there is no champion, or the registry cannot be used: no request is to be tried in vain.
    """
    from optimizers.advance import advance
    from service.adapters.mlflow_registry import MlflowRegistry
    from service.adapters.rollout_log import RolloutLog
    from service.adapters.router_source import NO_CHAMPION

    registry = MlflowRegistry(settings.mlflow_uri)
    if registry.champion_number() is None:
        raise ConfigurationError(NO_CHAMPION)
    return advance(registry, RolloutLog(settings.database_url), settings.mlflow_uri)


def estimate_one(settings: Settings, order: Order, wish: Wish, *, as_json: bool) -> None:
    """Say what the search for better programs would ask of the LM.

    Raises:
        typer.Exit: with 2 data or set-up cannot be used; with 1 database or registry is away.
    """
    try:
        expected = estimate(settings, order, wish, err)
    except CANNOT as exc:
        raise _exit(str(exc), exit_code(exc)) from exc
    if as_json:
        out.print_json(data=expected.as_json())
    else:
        out.print(expected.sentence(wish), highlight=False, soft_wrap=True)


@contextmanager
def _alone(settings: Settings, what: str) -> "Iterator[tuple[OptimizationJobs, Lease]]":
    from optimizers.lease import held
    from service.adapters.job_lease import LeaseLost, LeaseTaken
    from service.adapters.optimization_jobs import OptimizationJobs

    try:
        with OptimizationJobs(settings.database_url) as jobs, held(jobs, what) as lease:
            yield jobs, lease
    except (NotDone, LeaseTaken, LeaseLost) as exc:
        raise _exit(str(exc), AGAIN) from exc
    except CANNOT as exc:
        raise _exit(str(exc), exit_code(exc)) from exc


def _show(ended: Sequence[OptimizationRequest]) -> None:
    if not ended:
        out.print("No optimization is pending.", highlight=False)
        return
    table = Table(title="Requests", title_justify="left")
    for heading in ("request", "is", "version", "court", "because"):
        table.add_column(heading)
    for one in ended:
        is_now = "pending again" if one.status is RequestStatus.PENDING else one.status.value
        cells = (_name(one), is_now, one.router_version or "", one.ruling.value if one.ruling else "", one.reason or "")
        table.add_row(*map(escape, cells))
    out.print(table)


def _name(request: OptimizationRequest) -> str:
    return f"{request.signature_name.value} for {request.agent_name} of {request.tenant} ({request.priority.value})"


def _exit(message: str, code: int) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(code)
