"""The routers in use: who answers which session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.programs import Candidate, Programs, Router, Stage, in_share
from tests.unit.test_reload import a_router

CHAMPION, CHALLENGER = a_router("1"), a_router("2")


def trying(stage: Stage, share: float) -> Programs:
    """Return programs with a champion and a candidate."""
    programs = Programs(CHAMPION)
    programs.try_out(Candidate(CHALLENGER, stage, share))
    return programs


def version(router: Router | None) -> str:
    """Return a router's version."""
    return router.version if router is not None else ""


@given(st.text(max_size=40))
def test_a_session_always_gets_the_same_router(session: str) -> None:
    """Whatever its name, lone surrogates included."""
    programs = trying(Stage.CANARY, 0.3)

    assert version(programs.of(session)) == version(programs.of(session)) == ("2" if in_share("2", session, 0.3) else "1")


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_a_canary_serves_its_share_of_the_sessions(share: float) -> None:
    """Of 20,000 sessions, within what chance allows."""
    programs = trying(Stage.CANARY, share)

    served = sum(version(programs.of(f"session-{i}")) == "2" for i in range(20_000))

    assert served / 20_000 == pytest.approx(share, abs=5 * (share * (1 - share) / 20_000) ** 0.5)


def test_another_version_gets_other_sessions() -> None:
    """Nobody is always the one on whom new routers are tried."""
    shared = sum(in_share("2", f"s{i}", 0.1) and in_share("3", f"s{i}", 0.1) for i in range(20_000))

    assert shared / 20_000 == pytest.approx(0.01, abs=0.005)


def test_in_the_shadow_the_champion_serves_everybody() -> None:
    """So it does when nothing is tried any longer."""
    shadowed, ended = trying(Stage.SHADOW, 1.0), trying(Stage.CANARY, 1.0)
    ended.try_out(None)

    assert {version(programs.of(f"s{i}")) for programs in (shadowed, ended) for i in range(100)} == {"1"}
