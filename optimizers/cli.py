"""`optimize ...`: make router versions. Exit codes: 0 done; 1 it could not be done; 2 wrong usage or data."""

import math
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from optimizers.improve_cli import carry_out_pending, estimate_one, improve_one
from optimizers.order import AUTO, OPTIMIZERS, WRONG, Auto, CannotBeOptimized, Order, Wish, exit_code, wish_for
from optimizers.progress import shown
from optimizers.ruling import Rules
from service.adapters.mlflow_registry import MlflowRegistry, RegisteredVersion
from service.adapters.router_source import CHAMPION_NOTE, recall, remember
from service.catalog.coverage import say_described_only
from service.catalog.loader import load_catalog
from service.catalog.source import read_document
from service.contracts.model import JsonObject
from service.cores import cores
from service.errors import ConfigurationError
from service.routing.encoder_file import NAME
from service.routing.student import Student
from service.settings import Settings, read_settings
from service.terminal import as_utc, examples, run_program, terminal
from signatures.artifact import STUDENT, ArtifactError, damage_of, read_version

if TYPE_CHECKING:
    from optimizers.evaluate import Figure
    from optimizers.job import Bootstrapped

SEED_SET = Path("datasets/seed")
GOLDEN = Path("datasets/golden/test.jsonl")
ENDED = 128 + signal.SIGTERM  # the exit code of who was told to end
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
out, err = terminal(), terminal(stderr=True)


@app.command(
    no_args_is_help=True,
    epilog=examples(
        "`optimize --bootstrap`: the first router",
        "`optimize --bootstrap --seed-set FOLDER --golden FILE`: from other data",
        "`optimize --signature routing`: a better one, from the log",
        "`optimize --signature routing --rules FILE`: with other rules of the court",
        "`optimize --signature routing --lm openai/gpt-4.1-mini --dry-run`: what a search for better prompts would cost",
        "`optimize --pending`: what was asked for by `POST /optimizations`",
    ),
)
def optimize(
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Fit a router from the seed set; it is champion when it is the first.")
    ] = False,
    signature: Annotated[
        str | None,
        typer.Option(help="Make a better version of this and let the court decide: routing; with an LM also intent, synthesis."),
    ] = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Carry out what was asked for by POST /optimizations: for a periodic job.")
    ] = False,
    most: Annotated[int | None, typer.Option(min=1, help="With --pending: so many requests at most.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing when there is a champion that can be served.")] = False,
    seed_set: Annotated[
        Path | None,
        typer.Option(
            help="Folder or file of JSON lines with text and label: an intent of the catalogue, or oos. "
            f"Default: {SEED_SET}, and for --signature those of the champion."
        ),
    ] = None,
    golden: Annotated[Path | None, typer.Option(help="Labelled requests to measure on; never trained on.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Use signals from this day or instant on (UTC).")] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML with what the court asks for: docs/learning.md.")] = None,
    promote: Annotated[bool, typer.Option("--promote", help="Make it champion even when there is one, without further evidence.")] = False,
    optimizer: Annotated[
        str | None,
        typer.Option(help="student (default without an LM), miprov2 (default with one), bootstrap or gepa."),
    ] = None,
    lm: Annotated[str | None, typer.Option(help="LM whose programs are made better; default: POINTSMAN_LM.")] = None,
    auto: Annotated[str, typer.Option(help="How long an LM's programs are searched: light, medium or heavy.")] = "light",
    budget_calls: Annotated[int | None, typer.Option(min=1, help="Most calls of the LM, for each signature.")] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0.0, help="Most that the LM may cost, by LiteLLM's price list.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Ask no LM: say how many calls it needs, and what they cost. Takes minutes: the student is fitted."),
    ] = False,
    risk_target: Annotated[float, typer.Option(min=0.001, max=0.5, help="Largest share of errors where the student acts alone.")] = 0.02,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Make Pointsman's router better. `--bootstrap` makes the first version from labelled requests, `--signature routing` later ones."""
    if [bootstrap, signature is not None, pending].count(True) != 1:
        raise _exit("Say either --bootstrap, --signature routing or --pending.")
    if dry_run and signature is None:
        raise _exit("--dry-run says what --signature would need.")
    try:
        settings = read_settings()
    except ConfigurationError as exc:
        raise _exit(str(exc)) from exc
    if lm is not None and not lm.strip():
        raise _exit("--lm names no LM. Say one, such as openai/gpt-4.1-mini, or leave it out.")
    if budget_usd is not None and not math.isfinite(budget_usd):
        raise _exit("--budget-usd is no amount. Leave it out where nothing is to be spared.")
    if lm is not None:
        settings = settings.model_copy(update={"lm": lm, "lm_light": None, "lm_strong": None})
    if signature is not None or pending:
        chosen, how_long = _known(optimizer, auto, settings)
        order = _order(settings, seed_set, golden, since, _read_rules(rules), risk_target)

        def wish_of(name: str) -> Wish | None:
            return wish_for(name, chosen, how_long, budget_calls, budget_usd)

        if signature is None:
            carry_out_pending(settings, order, wish_of, most, as_json=as_json)
            return
        try:
            wish = wish_of(signature)
        except CannotBeOptimized as exc:
            raise _exit(str(exc)) from exc

        def make_first() -> None:
            if (seed_set or SEED_SET).exists() and find_champion(settings.mlflow_uri) is None:
                err.print("There is no champion to challenge yet; fitting the first router version.", highlight=False)
                _show(err, *_bootstrap(settings, seed_set or SEED_SET, golden, risk_target, promote=False))

        if not dry_run:
            improve_one(settings, order, signature, wish, make_first, as_json=as_json)
        elif wish is not None:
            estimate_one(settings, order, wish, as_json=as_json)
        else:
            raise _exit(
                "--dry-run says what an LM would be asked. The student asks nobody. Name an LM, which needs no key for this: "
                "--lm openai/gpt-4.1-mini"
            )
        return
    if if_missing and (champion := find_champion(settings.mlflow_uri)) is not None:
        damage = damage_of(champion.folder)
        if damage is not None:
            raise _exit(
                f"The champion, version {champion.number}, is damaged: {damage} Restore it, go back (pointsman routers rollback), or fit "
                "another in its place: optimize --bootstrap --promote"
            )
        if Student.is_current(champion.folder / STUDENT, NAME if settings.encoder is None else None):
            _require_labels(champion, settings)
            return
        err.print(
            "The champion was fitted by another version of Pointsman, or on another encoder, and cannot be served; fitting a new one.",
            highlight=False,
        )
        promote = True
    made, seconds = _bootstrap(settings, seed_set or SEED_SET, golden, risk_target, promote=promote)
    if as_json:
        out.print_json(data=_as_json(made))
    else:
        _show(out, made, seconds)


def _require_labels(champion: RegisteredVersion, settings: Settings) -> None:
    """Refuse a champion that was fitted for another catalogue: no service would take it, and it is not for this command to replace it."""
    from service.reload import check_labels

    try:
        labels = read_version(champion.folder).manifest.label_set
        check_labels(champion.number, labels, load_catalog(settings.catalog))
    except (ArtifactError, ConfigurationError) as exc:
        raise _exit(f"{exc} Or go back to a version that was: pointsman routers list; pointsman routers promote VERSION") from exc


def _bootstrap(
    settings: Settings, seed_set: Path, golden: Path | None, risk_target: float, *, promote: bool
) -> "tuple[Bootstrapped, float]":
    """Fit and register a first version; return it with the seconds that it took."""
    test = golden if golden is not None else GOLDEN if seed_set == SEED_SET and GOLDEN.is_file() else None
    from optimizers import job  # scikit-learn and SciPy take seconds to import
    from service.routing.encoder import Encoder

    started = time.monotonic()
    with shown(err) as progress:
        try:
            made = job.bootstrap(
                seed_set,
                test,
                mlflow_uri=settings.mlflow_uri,
                load_encoder=lambda: Encoder(settings.encoder, threads=cores()),
                descriptions={intent.name: intent.description for intent in load_catalog(settings.catalog).intents},
                risk_target=risk_target,
                promote=promote,
                progress=progress,
            )
        except (ValueError, FileNotFoundError, ConfigurationError) as exc:
            raise _exit(str(exc), exit_code(exc)) from exc
    return made, time.monotonic() - started


def _order(
    settings: Settings, seed_set: Path | None, golden: Path | None, since: datetime | None, rules: Rules, risk_target: float
) -> Order:
    return Order(
        mlflow_uri=settings.mlflow_uri,
        database_url=settings.database_url,
        rules=rules,
        risk_target=risk_target,
        seed_set=seed_set,
        golden=golden or (GOLDEN if seed_set is None and GOLDEN.is_file() and settings.catalog is None else None),
        since=as_utc(since, "--since"),
    )


def _known(optimizer: str | None, auto: str, settings: Settings) -> tuple[str, Auto]:
    """Return the optimizer, by default the one that the set-up has, and how long it is to search."""
    chosen = optimizer or ("student" if settings.lm is None else "miprov2")
    if chosen not in OPTIMIZERS:
        raise _exit(f"There is no optimizer {chosen!r}. Known: {', '.join(OPTIMIZERS)}.")
    for one in AUTO:
        if one == auto:
            return chosen, one
    raise _exit(f"--auto is one of {', '.join(AUTO)}, not {auto!r}.")


def _read_rules(path: Path | None) -> Rules:
    if path is None:
        return Rules()
    if not path.is_file():
        raise _exit(f"The rules {path} cannot be read: {'it is no file' if path.exists() else 'there is no such file'}.")
    document = read_document(path.parent, path.name)
    if document.problems:
        raise _exit("The rules cannot be used. " + " ".join(map(str, document.problems)))
    try:
        return Rules.model_validate(document.data)
    except ValidationError as exc:
        wrong = "; ".join(f"{path.name}:{document.line(e['loc'])}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise _exit(f"The rules cannot be used. {wrong}") from exc


def find_champion(mlflow_uri: str) -> RegisteredVersion | None:
    """Return the champion: by the note of the last good version, else from the registry, which takes seconds to ask."""
    noted = recall(mlflow_uri, CHAMPION_NOTE)
    if noted is not None and damage_of(noted.folder) is None:
        return noted
    try:
        champion = MlflowRegistry(mlflow_uri).champion()
    except ConfigurationError as exc:
        raise _exit(str(exc), exit_code(exc)) from exc
    if champion is not None:
        remember(mlflow_uri, champion)
    return champion


def _figures(made: "Bootstrapped") -> "dict[str, Figure]":
    golden = made.golden.figures() if made.golden else {}
    return {"cross_fitted_accuracy": made.cross_fitted, **{f"golden_{name}": figure for name, figure in golden.items()}}


def _as_json(made: "Bootstrapped") -> JsonObject:
    values: JsonObject = {name: {"value": f.value, "low": f.low, "high": f.high, "n": f.n} for name, f in _figures(made).items()}
    facts: JsonObject = {"version": made.version.number, "alias": made.alias, "described_only": list(made.described_only)}
    return {**facts, "policy": made.policy.model_dump(), "figures": values}


def _show(out: Console, made: "Bootstrapped", seconds: float) -> None:
    table = Table(title=f"Router version {made.version.number} ({made.alias}), {seconds:.0f} s", title_justify="left")
    for heading in ("figure", "value", "95 % interval", "rows"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, f in _figures(made).items():
        table.add_row(name, f"{f.value:.3f}", f"{f.low:.3f} to {f.high:.3f}", str(f.n))
    out.print(table)
    policy = made.policy
    alone = (
        f"acts alone from probability {policy.act_above:.3f} (error at most {policy.risk_target:.1%} with 95 % confidence, "
        f"{policy.coverage:.0%} of accepted requests)"
        if policy.coverage > 0.0
        else f"never acts without a warning: too few rows to prove an error of at most {policy.risk_target:.1%}"
    )
    out.print(f"{alone}; refuses above out-of-scope score {policy.refuse_above:.3f}", highlight=False)
    if made.described_only:
        out.print(say_described_only(made.described_only), highlight=False, markup=False)
    if made.alias != "champion":
        out.print("There was a champion already, so this version is the challenger. To serve it without further evidence: --promote")


def _exit(message: str, code: int = WRONG) -> typer.Exit:
    err.print(message, style="red", markup=False)
    return typer.Exit(code)


def main() -> None:
    """Run the program. SIGTERM ends it as an error would: what it holds, a lease and the request that it was at, is given back."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))
    try:
        run_program(app)
    except SystemExit as exc:
        if exc.code == ENDED:  # the threads of libraries that are at work would abort an orderly end of Python
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(ENDED)
        raise


if __name__ == "__main__":
    main()
