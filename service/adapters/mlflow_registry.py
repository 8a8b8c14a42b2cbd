"""Router versions in MLflow's model registry: where they lie, and which one an alias names. MLflow takes seconds to import.

A version is a folder of safetensors and JSON (`signatures/artifact.py`), never an MLflow flavour: nothing is unpickled, no model code runs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from service.adapters.mlflow_artifacts import artifact, place_of, version_folder
from service.adapters.mlflow_client import kind_of, local_path, log_dataset, may_exist, open_client, readable, shown, sqlite_path, writes
from service.errors import ConfigurationError
from signatures.artifact import ArtifactError, read_version

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

MODEL = "pointsman-router"
EXPERIMENT = "pointsman"
ARTIFACT = "router"
CHAMPION = "champion"
CHALLENGER = "challenger"
PREVIOUS = "previous"
CANDIDATE = "candidate"  # the challenger that is tried beside the champion
RULING = "ruling"  # the tag that says what the court made of a version
STAGE, SHARE, MOST_WORSE, SINCE = "stage", "share", "stage_most_worse", "stage_since"  # the tags of a candidate: how it is tried
REASON = "ruling_reason"  # the tag that says why, where the verdict does not
PROMOTED = "promoted_at"  # the tag that says when a version became champion
VERDICT = "verdict.json"  # the artifact of its run that says why
TAKEN_BACK, ROLLED_BACK = "taken_back", "rolled_back"  # rulings on a champion that was left: by the service, by a person
LEFT = (TAKEN_BACK, ROLLED_BACK)
CASE = "case"  # the parameter of a run that says what its version was made from and is judged by
DIGEST = 36  # characters of a dataset's digest that MLflow keeps
REPORT = "report.html"  # the same for people, with what led to it


class NoWayBack(ConfigurationError):
    """There is no version to go back to."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version in the registry and its folder on this machine."""

    number: str
    folder: Path


@dataclass(frozen=True, slots=True)
class UsedDataset:
    """The dataset that a version was made from: its SHA-256, where it lies in the run, and what it is in numbers (JSON)."""

    sha256: str
    artifact: str
    profile: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A challenger that is tried beside the champion: in which stage, for which share of the sessions, and since when.

    `most_worse` is by how much it may be worse before it is stopped.
    """

    number: str
    stage: str
    share: float
    since: datetime
    most_worse: float = 0.0


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """What the registry says of a version without fetching it.

    `ruling` is the last one and `reason` why, where that came after the verdict; `stage` is how it is tried now, where it is.
    """

    number: str
    aliases: tuple[str, ...]
    created_at: datetime
    run_id: str
    params: dict[str, str]
    metrics: dict[str, float]
    ruling: str | None
    reason: str | None = None
    stage: str | None = None


class MlflowRegistry:
    """Reads and writes versions. Blocking; for threads and offline jobs."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def champion(self) -> RegisteredVersion | None:
        """Return the version under the alias `champion`, downloaded where it is not on this machine.

        Raises:
            ConfigurationError: the registry cannot be read.
        """
        return self.under(CHAMPION)

    def champion_number(self) -> str | None:
        """Return the number under the alias `champion`, without fetching anything; see `champion`."""
        if not may_exist(self.uri):
            return None
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version_by_alias(MODEL, CHAMPION))
        return str(found[0].version) if found else None

    def under(self, alias: str) -> RegisteredVersion | None:
        """Return the version under an alias; see `champion`."""
        if not may_exist(self.uri):
            return None
        client = self._client()
        with readable(self.uri) as found:
            version = client.get_model_version_by_alias(MODEL, alias)
            found.append(version)
        return self._fetch(found[0]) if found else None

    def version(self, number: str) -> RegisteredVersion | None:
        """Return a version by its number, or None; see `champion`."""
        if not may_exist(self.uri):
            return None
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version(MODEL, number))
        return self._fetch(found[0]) if found else None

    def run_of(self, number: str) -> str:
        """Return the run that made a version that there is; see `champion`."""
        with readable(self.uri) as found:
            found.append(self._client().get_model_version(MODEL, number))
        if not found:
            raise ConfigurationError(f"There is no router version {number}. See: pointsman routers list")
        return str(found[0].run_id)

    def versions(self) -> list[ListedVersion]:
        """Return all versions, the newest first."""
        if not may_exist(self.uri):
            return []
        client = self._client()
        with readable(self.uri) as found:
            aliases: dict[str, list[str]] = {}
            for alias, number in client.get_registered_model(MODEL).aliases.items():
                aliases.setdefault(str(number), []).append(alias)
            found += client.search_model_versions(f"name = '{MODEL}'")
        listed = [self._list(client, one, aliases.get(str(one.version), [])) for one in found]
        return sorted(listed, key=lambda one: -int(one.number))

    def promote(self, number: str, *, over: str | None = None) -> None:
        """Make a version champion; the champion before it becomes `previous`.

        Args:
            number: the version.
            over: the champion that it was tried against, where it was.

        Raises:
            ConfigurationError: there is no such version, another one is champion than `over`, or the registry cannot be written.
        """
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version(MODEL, number))
            aliases = client.get_registered_model(MODEL).aliases
            old = aliases.get(CHAMPION)
            if over is not None and str(old) != over:
                raise ConfigurationError(f"Version {old} is champion by now, not {over}. Nothing was changed. See: pointsman routers list")
            left = old is not None and client.get_model_version(MODEL, old).tags.get(RULING) in LEFT
            client.set_model_version_tag(MODEL, number, PROMOTED, datetime.now(UTC).isoformat())
            moves = [(CHAMPION, number)]
            if old is not None and str(old) != number:
                # first: whatever ends this here, who serves can be left; last, where the old one was left itself
                moves.insert(1 if left else 0, (PREVIOUS, str(old)))
            for alias, version in moves:
                client.set_registered_model_alias(MODEL, alias, version)
            if found[0].tags.get(RULING) in LEFT:
                client.delete_model_version_tag(MODEL, number, RULING)
            for alias in (CHALLENGER, CANDIDATE):
                if str(aliases.get(alias)) == number:
                    client.delete_registered_model_alias(MODEL, alias)
        if not found:
            raise ConfigurationError(f"There is no router version {number}. See: pointsman routers list")

    def rollback(self, left: str, reason: str, *, only: str | None = None) -> tuple[str, str]:
        """Make the version under `previous` champion again; return the number that served and the one that serves now.

        Nobody goes back to a version that was itself left: two who go back at once would take turns.

        Args:
            left: the ruling on the version that is left, of `LEFT`.
            reason: the sentence that says why.
            only: the version that is to be left; None: whichever is champion.

        Raises:
            NoWayBack: there is no previous version, it was left itself, or another version than `only` is champion by now.
            ConfigurationError: it is damaged or cannot be fetched, or the registry cannot be used. Nothing was changed.
        """
        if not may_exist(self.uri):
            raise ConfigurationError(
                f"There is no registry of router versions at {shown(self.uri)} (POINTSMAN_MLFLOW_URI). Is its folder mounted, and the "
                "working folder the right one? If there never was one: optimize --bootstrap"
            )
        client = self._client()
        with readable(self.uri) as found:
            aliases = client.get_registered_model(MODEL).aliases
            found += [str(aliases[alias]) for alias in (CHAMPION, PREVIOUS) if alias in aliases]
        if len(set(found)) < 2:
            raise NoWayBack("There is no earlier champion to go back to. See: pointsman routers list")
        champion, previous = found
        if only not in (None, champion):
            raise NoWayBack(f"Version {champion} is champion by now, not {only}. Nothing was changed.")
        if self.ruling(previous) in LEFT:
            raise NoWayBack(
                f"Version {champion} serves in place of version {previous}, which was left ({self.ruling(previous)}). "
                f"To serve that one all the same: pointsman routers promote {previous}; or an older one of pointsman routers list."
            )
        version = self.version(previous)
        if version is None:
            raise ConfigurationError(f"Version {previous}, the champion before version {champion}, is gone from the registry.")
        try:
            read_version(version.folder)
        except ArtifactError as exc:
            raise ConfigurationError(f"Version {previous}, the champion before version {champion}, cannot be served: {exc}") from exc
        self.rule(champion, left, reason)
        self.promote(previous, over=champion)
        return champion, previous

    @writes
    def try_out(self, number: str, stage: str, share: float, most_worse: float = 0.0) -> None:
        """Have services try a version beside the champion, from now on and in place of any other."""
        client = self._client()
        before = self.tried()
        if before is not None and before.number != number:
            self.dismiss(before.number)
            self.rule(before.number, "reject", f"Version {number} is tried in its place.")
        for name, value in ((SHARE, str(share)), (MOST_WORSE, str(most_worse)), (SINCE, datetime.now(UTC).isoformat()), (STAGE, stage)):
            client.set_model_version_tag(MODEL, number, name, value)
        client.set_registered_model_alias(MODEL, CANDIDATE, number)

    @writes
    def dismiss(self, number: str) -> None:
        """Stop trying a version."""
        client = self._client()
        if str(client.get_registered_model(MODEL).aliases.get(CANDIDATE)) == number:
            client.delete_registered_model_alias(MODEL, CANDIDATE)

    def tried(self) -> Tried | None:
        """Return the challenger that is tried beside the champion, or None; see `champion`."""
        if not may_exist(self.uri):
            return None
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version_by_alias(MODEL, CANDIDATE))
        tags = found[0].tags if found else {}
        if not {SINCE, STAGE, SHARE} <= set(tags):
            return None  # nobody, or an alias that somebody set by hand
        try:
            since = datetime.fromisoformat(tags[SINCE])
            since = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
            return Tried(str(found[0].version), tags[STAGE], float(tags[SHARE]), since, float(tags.get(MOST_WORSE, 0.0)))
        except ValueError:  # set by hand, too
            return None

    def promoted(self) -> tuple[str, str, datetime] | None:
        """Return the champion, the one before it, and when it was promoted; None where that is not known."""
        if not may_exist(self.uri):
            return None
        client = self._client()
        with readable(self.uri) as found:
            aliases = client.get_registered_model(MODEL).aliases
            if CHAMPION in aliases and PREVIOUS in aliases:
                found.append(client.get_model_version(MODEL, aliases[CHAMPION]))
        at = found[0].tags.get(PROMOTED) if found else None
        return (str(aliases[CHAMPION]), str(aliases[PREVIOUS]), datetime.fromisoformat(at)) if at is not None else None

    @writes
    def rule(self, number: str, ruling: str, reason: str) -> None:
        """Write down a ruling that came after the verdict, with the sentence that says why."""
        client = self._client()
        client.set_model_version_tag(MODEL, number, REASON, reason)
        client.set_model_version_tag(MODEL, number, RULING, ruling)

    def ruling(self, number: str) -> str | None:
        """Return the last ruling on a version; see `champion`."""
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version(MODEL, number))
        return found[0].tags.get(RULING) if found else None

    @writes
    def record(self, number: str, ruling: str, texts: Mapping[str, str]) -> None:
        """Write down what the court made of a version: the ruling as a tag; the verdict and what else there is to read in its run."""
        client = self._client()
        version = client.get_model_version(MODEL, number)
        for name, text in texts.items():
            client.log_text(str(version.run_id), text, name)
        if REASON in version.tags:  # of the ruling before
            client.delete_model_version_tag(MODEL, number, REASON)
        client.set_model_version_tag(MODEL, number, RULING, ruling)

    def verdict(self, number: str) -> str | None:
        """Return the last verdict on a version as JSON, or None."""
        client = self._client()
        with readable(self.uri) as found:
            found.append(client.get_model_version(MODEL, number))
        return self.read_artifact(str(found[0].run_id), VERDICT) if found else None

    def read_artifact(self, run_id: str, path: str) -> str | None:
        """Return a text of a run, or None where it has none of that name; see `champion`."""
        with artifact(self.uri, run_id, path) as file:
            return file.read_text(encoding="utf-8") if file is not None else None

    def where(self, run_id: str, path: str) -> str | None:
        """Return where a file of a run lies, a path of this machine or a URI; None where it has none of that name; see `champion`."""
        place = place_of(self.uri, run_id, path)
        here = local_path(place) if place is not None else None
        return str(here) if here is not None else place

    def _fetch(self, version: "ModelVersion") -> RegisteredVersion:
        try:
            return RegisteredVersion(str(version.version), version_folder(self.uri, str(version.source)))
        except ConfigurationError as exc:
            raise kind_of(self.uri, exc)(f"Router version {version.version} cannot be had: {exc}") from exc

    def _list(self, client: "MlflowClient", version: "ModelVersion", aliases: list[str]) -> ListedVersion:
        with readable(self.uri) as run:  # it may be gone for good (`mlflow gc`), the version with it or not
            run.append(client.get_run(str(version.run_id)).data)
        return ListedVersion(
            number=str(version.version),
            aliases=tuple(sorted(aliases)),
            created_at=datetime.fromtimestamp(version.creation_timestamp / 1_000, UTC),
            run_id=str(version.run_id),
            params=dict(run[0].params) if run else {},
            metrics=dict(run[0].metrics) if run else {},
            ruling=version.tags.get(RULING),
            reason=version.tags.get(REASON) if RULING in version.tags else None,
            stage=version.tags.get(STAGE) if CANDIDATE in aliases else None,
        )

    @writes
    def register(
        self,
        folder: Path,
        *,
        params: dict[str, str],
        metrics: dict[str, float],
        promote: bool,
        attached: Mapping[str, Path] | None = None,
        dataset: UsedDataset | None = None,
    ) -> RegisteredVersion:
        """Log a version's folder as a run and register it.

        The first one gets the alias `champion`; later ones `challenger`, unless they are to be promoted at once. `attached` are further
        folders of the run, by the name that they get there, such as the dataset.
        """
        client = self._client()
        from mlflow.exceptions import MlflowException

        run = client.create_run(self._experiment(client), run_name=params.get("job", "router"))
        for name, text in params.items():
            client.log_param(run.info.run_id, name, text)
        for name, value in metrics.items():
            client.log_metric(run.info.run_id, name, value)
        client.log_artifacts(run.info.run_id, str(folder), ARTIFACT)
        for name, path in (attached or {}).items():
            client.log_artifacts(run.info.run_id, str(path), name)
        if dataset is not None:
            source = json.dumps({"uri": f"{run.info.artifact_uri}/{dataset.artifact}"})
            log_dataset(client, str(run.info.run_id), name=MODEL, digest=dataset.sha256[:DIGEST], source=source, profile=dataset.profile)
        try:
            client.get_registered_model(MODEL)
        except MlflowException:
            client.create_registered_model(MODEL, description="Router versions of Pointsman")
        source = f"{run.info.artifact_uri}/{ARTIFACT}"
        version = client.create_model_version(MODEL, source, run.info.run_id)
        client.set_terminated(run.info.run_id)
        if CHAMPION in client.get_registered_model(MODEL).aliases and not promote:
            client.set_registered_model_alias(MODEL, CHALLENGER, version.version)
        else:
            self.promote(str(version.version))
        local = local_path(source)
        return RegisteredVersion(str(version.version), local) if local is not None else self._fetch(version)

    def _experiment(self, client: "MlflowClient") -> str:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return str(experiment.experiment_id)
        database = sqlite_path(self.uri)
        location = (database.parent / "artifacts").as_uri() if database else None
        return str(client.create_experiment(EXPERIMENT, artifact_location=location))

    def _client(self) -> "MlflowClient":
        return open_client(self.uri)
