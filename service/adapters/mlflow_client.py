"""MLflow's client, opened as Pointsman wants it: no telemetry, no pickles, short timeouts, and its errors told apart. Slow to import."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import unquote, urlparse

from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from service.adapters.sql_engine import IN_PASSWORDS
from service.errors import ConfigurationError

if TYPE_CHECKING:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

P = ParamSpec("P")
T = TypeVar("T")
CONNECT_SECONDS = 5
AWAY = "TEMPORARILY_UNAVAILABLE"  # how MLflow tells that its database does not answer
NO_ADDRESS = f"POINTSMAN_MLFLOW_URI is no address. {IN_PASSWORDS}"
_PASSWORD = re.compile(r"(://[^:/@]*:).*(?=@)")
_IN_QUERY = re.compile(r"([?&](?:password|token)=)[^&]*", re.IGNORECASE)
ENVIRONMENT = {  # of whoever imports MLflow
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ALLOW_MODEL_CODE_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # where `--json` prints
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",  # which may say an hour
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
}


class RegistryAway(ConfigurationError):
    """MLflow does not answer: nobody listens, it takes too long, or it says that something is wrong with itself."""

    retryable = True


def open_client(uri: str) -> "MlflowClient":
    """Return a client of tracking and registry at one address.

    Raises:
        RegistryAway: the database there does not answer.
        ConfigurationError: they cannot be opened.
    """
    errors = _errors()
    database = sqlite_path(uri)
    if database is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
    from mlflow.tracking import MlflowClient

    try:
        if uri.startswith("postgresql"):
            _require_answer(uri)
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except ValueError:
        raise ConfigurationError(f"The MLflow registry {shown(uri)} cannot be opened: {NO_ADDRESS}") from None  # it may quote a password
    except (errors, SQLAlchemyError, ImportError) as exc:  # a database whose driver is not installed
        raise _unusable(uri, "opened", exc) from exc


@functools.cache  # what raised is asked again
def _require_answer(uri: str) -> None:
    """Ask a PostgreSQL server before MLflow does, which would try for many minutes; once it has answered, never again.

    Raises:
        SQLAlchemyError: it does not answer.
        ValueError: the address is none.
    """
    if "@" in (make_url(uri).host or ""):
        raise ValueError(NO_ADDRESS)
    engine = create_engine(uri, connect_args={"connect_timeout": CONNECT_SECONDS}, poolclass=NullPool)
    engine.connect().close()


def _errors() -> "type[MlflowException]":
    """Return what MLflow raises; whatever imports MLflow first has to have its settings made."""
    for name, text in ENVIRONMENT.items():
        os.environ.setdefault(name, text)
    from mlflow.exceptions import MlflowException

    return MlflowException


def may_exist(uri: str) -> bool:
    """Say whether there may be a store: reading must not create one."""
    database = sqlite_path(uri)
    return database is None or database.is_file()


@contextmanager
def readable(uri: str) -> Iterator[list[Any]]:
    """Yield a list for what is found; it stays empty where the registry has no such thing, and an error of the store is translated.

    Raises:
        RegistryAway: it does not answer.
        ConfigurationError: the registry cannot be used.
    """
    errors = _errors()
    from google.protobuf.json_format import ParseError

    found: list[Any] = []
    try:
        yield found
    except SQLAlchemyError as exc:
        raise _unusable(uri, "read", exc) from exc
    except errors as exc:
        if exc.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            raise _unusable(uri, "read", exc) from exc
        found.clear()
    except ParseError as exc:
        raise ConfigurationError(f"{shown(uri)} does not answer as an MLflow registry does. Is the address the right one?") from exc


class _HasAddress(Protocol):
    uri: str


Registry = TypeVar("Registry", bound=_HasAddress)


def writes(method: Callable[Concatenate[Registry, P], T]) -> Callable[Concatenate[Registry, P], T]:
    """Translate what a method of a registry meets while it writes: a server that is down, a full disk, a version that is gone.

    The method then raises `ConfigurationError`, which is `RegistryAway` where MLflow does not answer.
    """

    @functools.wraps(method)
    def translated(self: Registry, /, *args: P.args, **kwargs: P.kwargs) -> T:
        errors = _errors()
        try:
            return method(self, *args, **kwargs)
        except (errors, SQLAlchemyError, OSError) as exc:
            raise _unusable(self.uri, "written", exc) from exc

    return translated


def _unusable(uri: str, done: str, exc: Exception) -> ConfigurationError:
    """Return the error to raise for what was raised when a registry was to be opened, read or written."""
    return kind_of(uri, exc)(f"The MLflow registry {shown(uri)} cannot be {done}: {told(exc, uri)}")


def kind_of(uri: str, exc: Exception) -> type[ConfigurationError]:
    """Return `RegistryAway` for an error that tells that MLflow does not answer now, else its base; a file always answers.

    MLflow says of most that goes wrong with a request only that it did: what went wrong is told by the errors that led to its own.
    """
    from urllib3.exceptions import MaxRetryError, ProtocolError, SSLError, TimeoutError

    led = tuple(_led_to(exc))
    if sqlite_path(uri) is not None or any(isinstance(one, SSLError) for one in led):  # a certificate that does not fit stays so
        return ConfigurationError
    away = (MaxRetryError, ProtocolError, TimeoutError, OperationalError)
    tells = any(isinstance(one, away) or getattr(one, "error_code", None) == AWAY for one in led)
    return RegistryAway if tells else ConfigurationError


def _led_to(exc: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = exc
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def log_dataset(client: "MlflowClient", run_id: str, *, name: str, digest: str, source: str, profile: str) -> None:
    """Note in a run which dataset it was made from: an artifact of a run (`source`, JSON), and what it is in numbers (`profile`, JSON)."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    logged = Dataset(name=name, digest=digest, source_type="run_artifact", source=source, profile=profile)
    client.log_inputs(run_id, [DatasetInput(logged, [InputTag("mlflow.data.context", "training")])])


def shown(uri: str) -> str:
    """Return an address for messages: without its password, also where that has characters which an address cannot have."""
    return _IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1***", uri))


def told(exc: Exception, uri: str) -> str:
    """Return what an error says, without the address's password."""
    text = str(exc)
    for found in (*_PASSWORD.finditer(uri), *_IN_QUERY.finditer(uri)):
        password = found[0].removeprefix(found[1])
        text = text.replace(password, "***").replace(unquote(password), "***") if password else text
    return text


def sqlite_path(uri: str) -> Path | None:
    """Return the absolute path of a SQLite file's URI, or None for a server."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///")).absolute()


def local_path(uri: str) -> Path | None:
    """Return the path of an artifact on this machine, or None where it lies elsewhere."""
    parsed = urlparse(uri)
    return Path(unquote(parsed.path)) if parsed.scheme in {"", "file"} else None
