"""`pointsman ...`: serve, agents, run, ask, route, doctor, migrate. The outermost edge: it alone may call the offline side.

Each command imports what it needs, because a second of imports would delay all of them.
Exit codes: 0 done; 1 the answer is no (a check failed, nothing was answered); 2 wrong usage or configuration.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import uuid4

import typer
from pydantic import ValidationError
from rich.console import Console

from optimizers import replay_cli
from optimizers.bench_cli import app as bench_app
from optimizers.routers_cli import app as routers_app
from optimizers.signals_cli import app as signals_app
from service.contracts.query import ConversationTurn, OrchestratorInput, ParsedQuery
from service.errors import ConfigurationError, PointsmanError
from service.keys_cli import app as keys_app
from service.listening import require_free_port
from service.settings import Settings, read_settings
from service.terminal import examples, run_program, terminal

if TYPE_CHECKING:
    from service.contracts.decision import RouteDecision

app = typer.Typer(
    help="Pointsman routes questions to the agents that should answer them, and learns from every decision.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(bench_app, name="bench")
app.add_typer(keys_app, name="keys")
app.add_typer(routers_app, name="routers")
app.add_typer(signals_app, name="signals")
out, err = terminal(), terminal(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ENDED = 128 + signal.SIGTERM  # the exit code of who was told to end
T = TypeVar("T")


def _turn(text: str) -> ConversationTurn:
    """Read what somebody has said from the command line: "user: ..." or "assistant: ..."."""
    role, _, content = text.partition(":")
    said_by = role.strip().lower()
    try:
        return ConversationTurn.model_validate({"role": said_by if said_by != "system" else "", "content": content.strip()})
    except ValidationError as exc:
        raise typer.BadParameter(f'{text!r} must begin with "user:" or "assistant:".') from exc


HistoryOption = Annotated[
    list[ConversationTurn] | None,
    typer.Option(
        "--history", parser=_turn, metavar="TURN", help='What was said before, "user: ..." or "assistant: ..."; once a turn, oldest first.'
    ),
]
FOLLOW_UP = '"and in the Midwest?" --history "user: Did the rep visits lift Kisqali TRx?" --history "assistant: Yes, by 0.8."'


@app.command(epilog="Example: `pointsman serve --port 8100`")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; default POINTSMAN_HOST or 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; default POINTSMAN_PORT or 8100.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the port; one uses about one and a half cores.")] = 1,
) -> None:
    """Serve the HTTP API until Ctrl-C."""
    if workers == 1:
        _run(_serve(host, port))
        return
    from service.workers import serve_together

    try:
        serve_together(read_settings(host=host, port=port), workers)
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc


@app.command(epilog=examples("`pointsman agents --port 8101`", "`pointsman agents --faults drill.yaml`: a drill (docs/drills.md)"))
def agents(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port; default POINTSMAN_AGENTS_PORT or 8101.")] = None,
    faults: Annotated[Path | None, typer.Option(metavar="PLAN.yaml", help="Misbehave as this plan says: docs/drills.md.")] = None,
) -> None:
    """Serve the built-in reference agents until Ctrl-C."""
    import uvicorn

    from service.agents.app import create_agents_app

    try:
        settings = read_settings(agents_port=port or None)
        chosen = 0 if port == 0 else settings.agents_port
        require_free_port(host, chosen, "Take another one with --port.")
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc
    warnings.filterwarnings("ignore", module=r"dowhy\.")  # its use of pandas is not the operator's business, nor what it logs
    logging.getLogger("dowhy").setLevel(logging.ERROR)
    if faults is not None:
        from service.agents.faults.drill import run_drill

        _run(_with_settings(lambda settings: run_drill(faults, host, chosen, settings, say=_plainly(out), warn=_plainly(err))))
        return
    from service.logs import configure_logs
    from service.workers import LONGEST_WORK_SECONDS, serving

    configure_logs(settings.log_level)
    uvicorn.run(create_agents_app(), host=host, port=chosen, **serving(LONGEST_WORK_SECONDS))


@app.command(epilog="Example: `pointsman run`")
def run(
    question: Annotated[
        str, typer.Option(help="The question to ask when all is ready.")
    ] = "Did the rep visits really lift Kisqali TRx in the Midwest?",
) -> None:
    """Start service and agents, wait until both are ready, ask one real question, and keep serving until Ctrl-C."""
    from service.supervisor import run_all

    raise typer.Exit(_run(_with_settings(lambda settings: run_all(settings, question, out))))


@app.command(
    epilog=examples('`pointsman ask "Where are we leaving Fabhalta scripts on the table?"`', f"`pointsman ask {FOLLOW_UP}`: a follow-up")
)
def ask(
    text: Annotated[str, typer.Argument(help="The question.")],
    url: Annotated[str | None, typer.Option(help="The service; default: POINTSMAN_HOST and POINTSMAN_PORT.")] = None,
    key: Annotated[str | None, typer.Option(envvar="POINTSMAN_KEY", help="API key, where keys are in use.")] = None,
    history: HistoryOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a running service and show its answer."""
    from service.supervisor import ask_service, service_url, show_answer

    answer = _run(_with_settings(lambda settings: ask_service(url or service_url(settings), text, key, history or ())))
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False))
    else:
        show_answer(text, answer, out)
    raise typer.Exit(1 if answer["status"] == "failed" else 0)


@app.command(epilog=examples('`pointsman route "who responds best to samples?" --json`', f"`pointsman route {FOLLOW_UP}`: a follow-up"))
def route(text: Annotated[str, typer.Argument(help="The question.")], history: HistoryOption = None, as_json: JsonFlag = False) -> None:
    """Decide which agents should handle a text, in this process and without asking them."""
    decision = _run(_route(text, tuple(history or ())))
    if as_json:
        typer.echo(decision.model_dump_json())
        return
    agents, beside = decision.primary_agent or "no agent", ", ".join(decision.secondary_agents)
    if beside and decision.flow != "pipeline":
        agents += f" + {beside}" if decision.flow == "parallel" else f" (should it be unsure: {beside})"
    out.print(f"[bold]{decision.action}[/] → {agents}   intent {', '.join(decision.intents) or '-'} ({decision.confidence:.2f})")
    out.print(f"rung {decision.rung}, router {decision.router_version}, out-of-scope {decision.oos_score:.3f}", style="dim")
    for candidate in decision.candidates[:4]:
        out.print(f"  {candidate.probability:6.3f}  {candidate.intent}")
    out.print(decision.question or decision.rationale, markup=False)
    for warning in decision.warnings:
        err.print(f"warning: {warning.message}", style="yellow", markup=False)


@app.command(epilog="Example: `pointsman doctor --json`")
def doctor(as_json: JsonFlag = False) -> None:
    """Check the installation and say what to do about what is wrong. Exit code 1 when something is."""
    from service.doctor import examine, show

    checks = _run(_with_settings(examine))
    if as_json:
        typer.echo(json.dumps([c.as_dict() for c in checks]))
    else:
        show(checks, out)
    raise typer.Exit(0 if all(c.ok for c in checks) else 1)


@app.command(
    epilog=examples(
        "`pointsman migrate --wait 60`: before the service starts; waits for the database",
        "`pointsman migrate --to 0004`: says what the way down would lose; with --yes it goes",
    )
)
def migrate(
    to: Annotated[str | None, typer.Option(metavar="REVISION", help="Go up or down to this schema; default: this version's.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for a database that is not there yet.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", help="Lose the data that a way down loses.")] = False,
) -> None:
    """Bring the database to this version's schema. Exit code 0: it is there, also when it was; 1: not reached, or data would be lost."""
    from service.migrate import migrate as bring

    async def work(settings: Settings) -> None:
        await asyncio.to_thread(bring, settings.database_url, to=to, wait=wait, agreed=yes, say=_plainly(out))

    _run(_with_settings(work))


app.command(no_args_is_help=True, epilog=replay_cli.EXAMPLES)(replay_cli.replay)


async def _with_settings(work: Callable[[Settings], Awaitable[T]]) -> T:
    return await work(read_settings())


async def _serve(host: str | None, port: int | None) -> None:
    gc.disable()  # nothing that starting makes is garbage: a quarter of a second less
    import uvicorn

    from service.api.app import create_app
    from service.bootstrap import open_services
    from service.logs import configure_logs
    from service.workers import serving

    settings = read_settings(host=host, port=port)
    configure_logs(settings.log_level)
    require_free_port(settings.host, settings.port, "Set POINTSMAN_PORT to another port.")
    async with open_services(settings) as services:
        app_ = create_app(settings, opener=lambda _: nullcontext(services))
        gc.freeze()  # and none of it needs to be looked at again
        gc.enable()
        server = uvicorn.Server(uvicorn.Config(app_, host=settings.host, port=settings.port, **serving(settings.grace_seconds)))
        signal.signal(signal.SIGTERM, server.handle_exit)  # uvicorn raises it anew at its end, when what is open here has yet to be closed
        await server.serve()


async def _route(text: str, history: tuple[ConversationTurn, ...]) -> "RouteDecision":
    from service.bootstrap import open_services
    from service.logs import configure_logs

    configure_logs("ERROR")
    query = ParsedQuery(query_id=uuid4(), raw_query=text)
    request = OrchestratorInput(parsed_query=query, user_id="cli", session_id="cli", conversation_history=history)
    async with open_services(read_settings()) as services:
        await services.router_tried.wait()
        return await services.pipeline.decide(request)


def _run(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc
    except ValidationError as exc:
        raise _exit("\n".join(f"{e['loc'][-1]}: {e['msg']}" for e in exc.errors(include_input=False))) from exc
    except (PointsmanError, OSError) as exc:
        err.print(str(exc) or type(exc).__name__, style="red", markup=False)
        raise typer.Exit(1) from exc
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _plainly(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False)
    return typer.Exit(2)


def main() -> None:
    """Run the program. Until a command heeds SIGTERM itself, it ends at once, also as process 1 of a container, which would not hear it."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED))
    run_program(app)


if __name__ == "__main__":
    main()
