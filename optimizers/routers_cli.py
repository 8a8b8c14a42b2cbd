"""`pointsman routers ...`: router versions, what the court made of them, which one serves. Exit codes: 0 done; 2 it cannot be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from optimizers.hearing import report_of, show_verdict
from optimizers.prompt_diff import diff_programs
from optimizers.ruling import Ruling, Verdict
from optimizers.versions import NAMES, find_version
from service.adapters.mlflow_registry import CHAMPION, LEFT, ROLLED_BACK, ListedVersion, MlflowRegistry, RegisteredVersion
from service.adapters.region_log import RegionLog
from service.adapters.router_source import remember
from service.errors import ConfigurationError, StoreUnavailable
from service.routing.policy import Policy
from service.routing.regions import total
from service.settings import read_settings
from service.terminal import examples, terminal
from signatures.artifact import ArtifactError, RouterVersion, read_version

app = typer.Typer(
    help="Router versions: list, show, compare, promote, go back.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples("`pointsman routers list`", "`pointsman routers diff champion challenger`", "`pointsman routers rollback`"),
)
out, err = terminal(), terminal(stderr=True)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Name = Annotated[str, typer.Argument(metavar="VERSION", help=NAMES)]
T = TypeVar("T")
CROSS_FITTED = "cross_fitted_accuracy"


@app.callback()
def routers() -> None:
    """Router versions: list, show, compare, promote, go back."""


@app.command("list", epilog="Example: `pointsman routers list`")
def list_versions(as_json: JsonFlag = False) -> None:
    """List the router versions, the newest first."""
    registry, _ = _registry()
    listed = _or_exit(registry.versions)
    if as_json:
        out.print_json(data=[_as_json(one) for one in listed])
        return
    if not listed:
        out.print("There are no router versions yet. Make the first with: optimize --bootstrap", highlight=False)
        return
    table = Table()
    for heading in ("version", "alias", "made (UTC)", "by", "parent", "cross-fitted"):
        table.add_column(heading)
    table.add_column("court", no_wrap=True)
    for one in listed:
        accuracy = f"{one.metrics[CROSS_FITTED]:.3f}" if CROSS_FITTED in one.metrics else ""
        made = f"{one.created_at:%Y-%m-%d %H:%M}"
        table.add_row(
            one.number, ", ".join(one.aliases), made, one.params.get("job", ""), one.params.get("parent", ""), accuracy, _court(one)
        )
    out.print(table)


@app.command(no_args_is_help=True, epilog=examples("`pointsman routers show 3`", "`pointsman routers show challenger`"))
def show(name: Name, as_json: JsonFlag = False) -> None:
    """Show what a version is made of, and the court's verdict on it."""
    registry, _ = _registry()
    version, content = _read(registry, name)
    number = version.number
    listed = next(one for one in _or_exit(registry.versions) if one.number == number)
    verdict = _verdict(registry, number)
    manifest = content.manifest
    if as_json:
        said = verdict.model_dump(mode="json") if verdict else None
        out.print_json(data={**_as_json(listed), "manifest": manifest.model_dump(mode="json"), "policy": content.policy, "verdict": said})
        return
    alias = f" ({', '.join(listed.aliases)})" if listed.aliases else ""
    lines = [
        f"version {number}{alias}, made {listed.created_at:%Y-%m-%d %H:%M} by {listed.params.get('job', '?')}",
        f"parent {manifest.parent_version or 'none'}",
        f"data {manifest.data_hash[:16]}, {len(manifest.label_set)} intents, LM {manifest.lm or 'none'}, in {version.folder}",
        *(f"{name}: {m.value:.3f} ({m.low:.3f} to {m.high:.3f}, n = {m.n})" for name, m in sorted(manifest.metrics.items())),
    ]
    if listed.reason is not None or listed.stage is not None:
        lines.append(f"now: {_court(listed)}{'. ' + listed.reason if listed.reason else ''}")
    out.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    if verdict is not None:
        show_verdict(out, verdict, now=False)
    report = _or_exit(lambda: report_of(registry, number))
    if report is not None:
        out.print(f"Report: {report}", highlight=False, markup=False, soft_wrap=True)


@app.command(no_args_is_help=True, epilog=examples("`pointsman routers diff 2 3`", "`pointsman routers diff champion challenger`"))
def diff(old: Name, new: Name) -> None:
    """Show how two versions differ: intents, thresholds, figures, prompts."""
    registry, _ = _registry()
    contents = [_read(registry, name)[1] for name in (old, new)]
    lines = list(_differences(*contents))
    out.print("\n".join(lines) or "They do not differ.", highlight=False, markup=False, soft_wrap=True)


@app.command(no_args_is_help=True, epilog="Example: `pointsman routers promote 3`")
def promote(name: Name) -> None:
    """Make a version champion, whatever the court says; the one before it is kept to go back to."""
    registry, uri = _registry()
    version, _ = _read(registry, name)
    number = version.number
    ruling = _or_exit(lambda: registry.ruling(number))
    if _or_exit(registry.champion_number) == number and ruling not in LEFT:
        out.print(f"Version {number} is champion already.", highlight=False)
        return
    _or_exit(lambda: registry.promote(number))
    _note(uri, version)
    against = f" The court's ruling on it was: {ruling}." if ruling not in {None, Ruling.PROMOTE.value} else ""
    out.print(f"Version {number} is champion.{against} To go back: pointsman routers rollback", highlight=False, soft_wrap=True)


@app.command(epilog="Example: `pointsman routers rollback`")
def rollback() -> None:
    """Make the champion before this one champion again."""
    registry, uri = _registry()
    was, now = _or_exit(lambda: registry.rollback(ROLLED_BACK, "Left by hand."))
    version, _ = _read(registry, now)
    _note(uri, version)
    out.print(f"Version {now} is champion again, in place of {was}.", highlight=False)


@app.command(epilog=examples("`pointsman routers regions`", "`pointsman routers regions 3 --html regions.html`"))
def regions(
    name: Name = CHAMPION,
    html: Annotated[Path | None, typer.Option(help="Write a page with a chart.")] = None,
    take_again: Annotated[list[str] | None, typer.Option(help="An intent that was given back: the student answers it alone again.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show where the student answers without the LM, how often the LM agrees, what that saves, and what was given back."""
    from optimizers import regions_cli  # matplotlib and scikit-learn take seconds to import
    from optimizers.regions import live_regions

    registry, _ = _registry()
    version, content = _read(registry, name)
    found, policy = version.number, Policy.model_validate(content.policy)
    log = RegionLog(_or_exit(read_settings).database_url)
    if take_again and not _or_exit(lambda: log.take_again(found, take_again)):
        raise _exit(f"Version {found} has given back none of: {', '.join(take_again)}. See: pointsman routers regions {found}")
    tallies, given_back = _or_exit(lambda: log.tallies(found)), _or_exit(lambda: log.given_back(found))
    shown, whole = live_regions(tallies, policy, given_back), total(tallies)
    if html is not None:
        try:
            regions_cli.write_regions(html, found, policy, shown, whole)
        except OSError as exc:
            raise _exit(f"{html} cannot be written: {exc.strerror}.") from exc
    if as_json:
        out.print_json(data=regions_cli.as_json(found, policy, shown, whole))
    else:
        regions_cli.show_regions(out, found, policy, shown, whole)


def _differences(old: RouterVersion, new: RouterVersion) -> list[str]:
    """Return one line for each thing that differs."""
    before, after = old.manifest, new.manifest
    lines = [f"+ intent {name}" for name in after.label_set if name not in before.label_set]
    lines += [f"- intent {name}" for name in before.label_set if name not in after.label_set]
    for name in sorted({*old.policy, *new.policy}):
        if old.policy.get(name) != new.policy.get(name):
            lines.append(f"policy {name}: {json.dumps(old.policy.get(name))} -> {json.dumps(new.policy.get(name))}")
    for name in sorted({*before.metrics, *after.metrics}):
        values = [f"{m.metrics[name].value:.4f}" if name in m.metrics else "none" for m in (before, after)]
        if values[0] != values[1]:
            lines.append(f"{name}: {values[0]} -> {values[1]}")
    lines += diff_programs(old.programs, new.programs)
    if before.data_hash != after.data_hash:
        lines.append(f"data: {before.data_hash[:16]} -> {after.data_hash[:16]}")
    return lines


def _registry() -> tuple[MlflowRegistry, str]:
    settings = _or_exit(read_settings)
    return MlflowRegistry(settings.mlflow_uri), settings.mlflow_uri


def _read(registry: MlflowRegistry, name: str) -> tuple[RegisteredVersion, RouterVersion]:
    version = _or_exit(lambda: find_version(registry, name))
    try:
        return version, read_version(version.folder)
    except ArtifactError as exc:
        raise _exit(str(exc)) from exc


def _verdict(registry: MlflowRegistry, number: str) -> Verdict | None:
    try:
        text = _or_exit(lambda: registry.verdict(number))
        return Verdict.model_validate_json(text) if text is not None else None
    except ValueError:  # somebody wrote it by hand: what is known besides is shown all the same
        err.print(f"The verdict on version {number} (verdict.json of its run) cannot be read.", style="yellow", highlight=False)
        return None


def _note(uri: str, version: RegisteredVersion) -> None:
    """Tell the services of this working folder; those of others, and these without it, ask the registry."""
    try:
        remember(uri, version)
    except OSError as exc:
        err.print(f"The services here hear of it a few seconds later: {exc}.", style="yellow", markup=False, soft_wrap=True)


def _court(one: ListedVersion) -> str:
    """Say what the court made of a version, and how it is tried now."""
    return f"{one.ruling or ''} ({one.stage})".strip() if one.stage is not None else one.ruling or ""


def _as_json(one: ListedVersion) -> dict[str, object]:
    return {
        "version": one.number,
        "aliases": one.aliases,
        "created_at": one.created_at.isoformat(),
        "params": one.params,
        "metrics": one.metrics,
        "ruling": one.ruling,
        "reason": one.reason,
        "stage": one.stage,
    }


def _or_exit(work: Callable[[], T]) -> T:
    try:
        return work()
    except (ConfigurationError, StoreUnavailable) as exc:
        raise _exit(str(exc)) from exc


def _exit(message: str) -> typer.Exit:
    err.print(message, style="red", markup=False, soft_wrap=True)
    return typer.Exit(2)
