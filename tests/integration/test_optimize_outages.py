"""How `optimize` ends tells whether another attempt can end otherwise: 1 while database or registry is away, 2 where the set-up is wrong.

A scheduler goes by that (`k8s/base/learning.yaml`): with 2 it gives up until the next night.
"""

import asyncio
from pathlib import Path

import pytest

from service.adapters.mlflow_client import RegistryAway
from service.adapters.mlflow_registry import MlflowRegistry
from service.adapters.sql_engine import normalise, open_engine
from service.errors import ConfigurationError
from tests.contract.http_server import http, saying, serving
from tests.integration.office import open_office, run

pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with labelled requests and an empty log; there is no router."""
    folder = tmp_path_factory.mktemp("outages")
    open_office(folder)
    open_engine(normalise(f"sqlite:///{folder}/var/pointsman.db"), 3.0).dispose()
    return folder


@pytest.mark.parametrize("command", [("--signature", "routing", "--seed-set", "seed.jsonl"), ("--pending",)], ids=["signature", "pending"])
@pytest.mark.parametrize(
    ("name", "address", "code", "said"),
    [
        ("MLFLOW_URI", "http://127.0.0.1:1", 1, "The MLflow registry http://127.0.0.1:1 cannot be read"),
        ("MLFLOW_URI", "postgresql://u@127.0.0.1:1/x", 1, "cannot be opened"),
        ("MLFLOW_URI", "nonsense://x", 2, "cannot be opened"),
        ("MLFLOW_URI", "catalog", 2, "cannot be opened"),
        ("MLFLOW_URI", "mysql://u@127.0.0.1:1/x", 2, "No module named"),
        ("DATABASE_URL", "postgresql://u@127.0.0.1:1/x", 1, "The store cannot be used"),
        ("DATABASE_URL", "nonsense", 2, "POINTSMAN_DATABASE_URL must look like"),
    ],
    ids=["registry away", "its database away", "no scheme of a registry", "no registry", "no driver", "database away", "no address"],
)
def test_an_outage_can_be_tried_again_and_a_wrong_address_cannot(
    folder: Path, command: tuple[str, ...], name: str, address: str, code: int, said: str
) -> None:
    """With a sentence in either case, and nothing fitted."""
    done = run(folder, *command, **{name: address})

    assert (done.returncode, said in " ".join(done.stderr.split())) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert "fitting" not in done.stderr


def test_a_log_that_no_attempt_would_make_ends_with_2(folder: Path) -> None:
    """A job in the wrong folder would else be tried for ever."""
    done = run(folder, "--pending", DATABASE_URL="sqlite:///var/other.db")

    assert (done.returncode, "There is no log yet" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("status", "away"),
    [
        ("500 Internal Server Error", True),
        ("503 Service Unavailable", True),
        ("429 Too Many Requests", True),
        ("401 Unauthorized", False),
        ("403 Forbidden", False),
        ("404 Not Found", False),
        ("200 OK", False),
    ],
)
async def test_a_registry_that_answers_wrongly_is_told_from_one_that_is_away(status: str, away: bool) -> None:
    """It may come to itself; a key, a path or a program in its place stays wrong. What reads and what writes tell it alike."""
    async with serving(saying(http(b"<html></html>", status))) as server:
        registry = MlflowRegistry(f"http://127.0.0.1:{server.port}")
        with pytest.raises(ConfigurationError) as read:
            await asyncio.to_thread(registry.champion_number)
        with pytest.raises(ConfigurationError) as written:
            await asyncio.to_thread(registry.rule, "1", "reject", "Because it is.")

    assert [isinstance(one.value, RegistryAway) for one in (read, written)] == [away, away]
