"""`POST /routers/rollback`: who may, what it answers, and what it says when there is nothing to go back to or no registry."""

import asyncio
from pathlib import Path

import pytest

from service.adapters.mlflow_registry import MlflowRegistry
from service.contracts.surface import RolledBack
from service.errors import NothingToRollBack, PointsmanError, RegistryUnavailable
from service.rollback import Rollback
from signatures.artifact import write_version
from tests.conftest import World
from tests.contract.test_keys import bearer, keys_of
from tests.unit.signatures.test_artifact import MANIFEST

pytestmark = [pytest.mark.timeout(200), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]  # MLflow under SQLAlchemy 2.1


async def went_back() -> RolledBack:
    """Go back."""
    return RolledBack(was="4", now="3")


async def test_it_answers_what_was_and_what_is(world: World) -> None:
    """With 200."""
    world.roll_back = went_back

    async with world.client() as client:
        response = await client.post("/routers/rollback")

    assert (response.status_code, response.json()) == (200, {"was": "4", "now": "3"})


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NothingToRollBack("There is no earlier champion."), 409, "nothing_to_roll_back"),
        (RegistryUnavailable("It is away."), 503, "registry_unavailable"),
    ],
    ids=["nothing", "away"],
)
async def test_what_hinders_is_a_problem(world: World, error: PointsmanError, status: int, code: str) -> None:
    """In the form of all problems."""

    async def fail() -> RolledBack:
        raise error

    world.roll_back = fail

    async with world.client() as client:
        response = await client.post("/routers/rollback")

    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"


async def test_only_a_key_that_names_it_may_go_back(world: World) -> None:
    """A key for optimizations may not."""
    world.keys = keys_of(ops=("back", "routers:rollback"), team=("ask", "routers:optimize"), all=("all", "routers:*"))
    world.roll_back = went_back

    async with world.client() as client:
        answers = [(await client.post("/routers/rollback", headers=bearer(key))).status_code for key in ("back", "all", "ask", "wrong")]

    assert answers == [200, 200, 403, 401]


async def test_the_real_one_moves_the_alias_and_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there and once back; without an earlier champion, and without a registry, it says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    roll_back, registry = Rollback(uri), MlflowRegistry(uri)
    for name in ("one", "two"):
        write_version(tmp_path / name, MANIFEST, student=b"", policy={}, programs={})
        registry.register(tmp_path / name, params={"job": name}, metrics={}, promote=False)

    with pytest.raises(NothingToRollBack):
        await roll_back()
    registry.promote("2")
    answer = await roll_back()
    with pytest.raises(NothingToRollBack, match="pointsman routers promote 2"):
        await roll_back()

    assert (answer, registry.champion_number()) == (RolledBack(was="2", now="1"), "1")
    assert '"version": "1"' in (tmp_path / "var/router/champion.json").read_text()


async def test_a_registry_that_cannot_be_read_is_told_and_two_at_once_do_not_go_back_and_forth(tmp_path: Path) -> None:
    """The first is told what hinders, the second that the first is under way."""
    (tmp_path / "mlflow.db").write_text("no database at all, but long enough to be looked at as one" * 20)
    roll_back = Rollback(f"sqlite:///{tmp_path}/mlflow.db")

    answers = await asyncio.gather(roll_back(), roll_back(), return_exceptions=True)

    assert [type(answer) for answer in answers] == [RegistryUnavailable, NothingToRollBack]
