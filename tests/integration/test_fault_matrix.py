"""Every fault by every tier ends as the tables say: status, code, fallback, attempts and time, over real sockets."""

import pytest

from service.agents.faults.kinds import Fault
from tests.integration.fault_matrix import PAGE, REFUSED_PORT, ROWS, RULES, Cell, expected, page, run_all

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
async def cells() -> dict[tuple[str, str], Cell]:
    """Run the whole matrix once."""
    return await run_all()


@pytest.mark.parametrize("fault", RULES)
async def test_a_fault_ends_as_the_tables_say(cells: dict[tuple[str, str], Cell], fault: str) -> None:
    """Status, codes, attempts and who answers are those that follow from the catalogue; the time is that of the waits it allows."""
    for row in ROWS:
        wanted, found = expected(fault, row), cells[fault, row]

        assert (found.status, found.codes, found.attempts, found.answered_by) == (
            wanted.status,
            wanted.codes,
            wanted.attempts,
            wanted.answered_by,
        ), row
        assert wanted.seconds[0] <= found.seconds[0] + 0.01, row
        assert found.seconds[0] <= wanted.seconds[1], row


async def test_every_fault_of_the_fault_agent_is_in_the_matrix() -> None:
    """And the one that it cannot act out on a shared port."""
    assert set(RULES) == {REFUSED_PORT, *Fault}


async def test_the_page_shows_what_was_run(cells: dict[tuple[str, str], Cell]) -> None:
    """docs/fault-matrix.md is generated; renew it with `python -m tests.integration.fault_matrix`."""
    assert PAGE.read_text(encoding="utf-8") == page(cells)
