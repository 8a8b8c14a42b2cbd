"""The sample data are the same everywhere, and what docs/agents.md says of them is true."""

import re
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from service.agents import truth
from service.agents.sample_data import MEASURES, Snapshot, generate_snapshot

DOCUMENT = Path(__file__).parents[3] / "docs" / "agents.md"


def test_two_processes_generate_the_same_numbers(data: Snapshot) -> None:
    """The seed alone decides every number; only the calendar depends on the day."""
    again = generate_snapshot(today=date(2027, 1, 1))

    assert again.hcps.equals(data.hcps)
    assert all(np.array_equal(again.weekly[name], data.weekly[name]) for name in MEASURES)
    assert again.week_ends != data.week_ends


def test_another_seed_gives_another_draw(data: Snapshot) -> None:
    """A seed that is ignored would make every coverage test empty."""
    other = generate_snapshot(today=date(2026, 6, 17), seed=1)

    assert not np.array_equal(other.weekly["trx"], data.weekly["trx"])


def test_a_longer_data_set_begins_with_the_shorter_one(data: Snapshot, future: Snapshot) -> None:
    """Otherwise the added weeks would not be this data set's future."""
    assert future.weeks == data.weeks + 8
    assert future.week_ends[: data.weeks] == data.week_ends
    assert all(np.array_equal(future.weekly[name][: data.weeks], data.weekly[name]) for name in MEASURES)


@pytest.mark.parametrize("day", range(15, 22), ids=lambda day: f"june-{day}")
def test_the_last_week_ends_on_the_last_sunday_before_today(day: int) -> None:
    """June 14 and 21 of 2026 are Sundays; a Sunday's own week is not over."""
    snapshot = generate_snapshot(today=date(2026, 6, day), weeks=104)

    assert snapshot.week_ends[-1] == date(2026, 6, 14)


def test_the_data_cannot_be_changed_by_an_agent(data: Snapshot) -> None:
    """One agent's mistake must not reach the next request."""
    with pytest.raises(ValueError, match="read-only"):
        data.weekly["trx"][0, 0] = 5


def test_the_parts_of_a_count_never_exceed_the_whole(data: Snapshot) -> None:
    """NRx are TRx, TRx are part of the market, and only candidates convert."""
    for part, whole in (("nrx", "trx"), ("trx", "market_trx"), ("conversions", "candidates")):
        assert (data.weekly[part] <= data.weekly[whole]).all()


def test_the_documented_faults_are_in_the_data(data: Snapshot) -> None:
    """24 panel sizes are missing and 12 sample counts are -1."""
    assert int(data.hcps["panel_size"].isna().sum()) == 24
    assert int((data.weekly["samples"] == -1).sum()) == 12


def test_choice_of_hcps_depends_on_decile(data: Snapshot) -> None:
    """Without confounding the naive difference would be right and the adjusted effect would prove nothing."""
    decile, chosen = data.column("decile"), data.column("call_programme")

    assert chosen[decile >= 8].mean() > 2.5 * chosen[decile <= 3].mean()


def test_the_document_gives_the_numbers_that_the_data_are_made_from() -> None:
    """The tables of docs/agents.md and the constants of the generator are the same."""
    rows = {cells[0]: cells[1:] for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if len(cells := _cells(line)) in {3, 5}}
    seen = [_cells(line) for line in DOCUMENT.read_text(encoding="utf-8").splitlines()]

    for brand in truth.BRANDS:
        assert [brand, *(f"{value:.2f}" for value in truth.CALL_EFFECT[brand])] in seen
        assert [brand, *(f"{value:.2f}" for value in truth.ATTAINMENT[brand])] in seen
    for programme, effect in truth.TRX_EFFECT.items():
        assert rows[programme] == [f"{effect:.2f}", f"{truth.CONVERSION_EFFECT[programme]:.2f}"]
    assert rows["call_programme"][1] == f"{truth.CONVERSION_EFFECT['call_programme']:.2f}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.findall(r"\|([^|]*)(?=\|)", line)]
