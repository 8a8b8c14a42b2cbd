"""Names and periods are understood however they are written, and nothing hostile gets through."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from service.agents.finding import plain
from service.agents.kpi import find_kpi
from service.agents.period import parse_period
from service.agents.sample_data import Snapshot
from service.agents.scope import quoted, resolve_scope
from service.contracts.dispatch import AgentDispatch

MakeDispatch = Callable[..., AgentDispatch]


@pytest.mark.parametrize("name", ["Kisqali", "KISQALI", " kisqali ", "kisQali.", "\uff2bisqali"])
def test_a_brand_is_known_in_any_case(data: Snapshot, make_dispatch: MakeDispatch, name: str) -> None:
    """Case, blanks, punctuation and full-width letters make no difference."""
    assert resolve_scope(make_dispatch("explainer", brand=name), data).brands == ("Kisqali",)


@pytest.mark.parametrize(
    ("name", "region"), [("NORTHEAST", "Northeast"), ("north-east", "Northeast"), ("NE", "Northeast"), ("midwest", "Midwest")]
)
def test_a_region_is_known_by_its_usual_spellings(data: Snapshot, make_dispatch: MakeDispatch, name: str, region: str) -> None:
    """Hyphens and abbreviations are understood."""
    assert resolve_scope(make_dispatch("explainer", region=name), data).regions == (region,)


def test_all_hcps_of_the_named_brands_and_regions_are_in_scope_and_no_other(data: Snapshot, make_dispatch: MakeDispatch) -> None:
    """Several names of one type are all taken."""
    scope = resolve_scope(make_dispatch("explainer", brand=["Fabhalta", "kisqali"], region=["South"]), data)

    assert set(data.labels("brand")[scope.mask]) == {"Fabhalta", "Kisqali"}
    assert set(data.labels("region")[scope.mask]) == {"South"}
    assert int(scope.mask.sum()) == int(((data.hcps["brand"] != "Remibrutinib") & (data.hcps["region"] == "South")).sum())


def test_a_brand_in_the_text_alone_is_used_and_said(data: Snapshot, make_dispatch: MakeDispatch) -> None:
    """It was not among the entities, so the answer says where it came from."""
    scope = resolve_scope(make_dispatch("explainer", context={"raw_query": "And fabhalta?"}), data)

    assert scope.brands == ("Fabhalta",)
    assert any("taken from the question's text" in caveat for caveat in scope.caveats)


@pytest.mark.parametrize(
    ("name", "kpi"),
    [
        ("TRx", "trx"),
        ("Conversion Rate", "conversion_rate"),
        ("patient_conversion", "conversion_rate"),
        ("Market-Share", "market_share"),
        ("NBRx", None),
        ("profit", None),
    ],
)
def test_a_kpi_is_known_by_its_aliases(name: str, kpi: str | None) -> None:
    """An unknown one is None, never the nearest."""
    found = find_kpi(name)

    assert (found.name if found else None) == kpi


WEEKS = tuple(date.fromordinal(date(2026, 6, 14).toordinal() - 7 * back) for back in range(103, -1, -1))


@pytest.mark.parametrize(
    ("text", "first", "last", "length"),
    [
        ("last 8 weeks", "2026-04-26", "2026-06-14", 8),
        ("Past two quarters", "2025-12-21", "2026-06-14", 26),
        ("last_month", "2026-05-03", "2026-05-31", 5),
        ("this month", "2026-06-07", "2026-06-14", 2),
        ("last_quarter", "2026-01-04", "2026-03-29", 13),
        ("trailing quarter", "2026-03-22", "2026-06-14", 13),
        ("last year", "2025-01-05", "2025-12-28", 52),
        ("last_week", "2026-06-14", "2026-06-14", 1),
        ("March", "2026-03-01", "2026-03-29", 5),
        ("november", "2025-11-02", "2025-11-30", 5),
        ("February, 2026", "2026-02-01", "2026-02-22", 4),
        ("Q1'26", "2026-01-04", "2026-03-29", 13),
        ("Q1 2026", "2026-01-04", "2026-03-29", 13),
        ("2025-Q4", "2025-10-05", "2025-12-28", 13),
        ("q4", "2025-10-05", "2025-12-28", 13),
        ("2026-02", "2026-02-01", "2026-02-22", 4),
        ("2025", "2025-01-05", "2025-12-28", 52),
        ("YTD", "2026-01-04", "2026-06-14", 24),
        ("2025-12", "2025-12-07", "2025-12-28", 4),
    ],
)
def test_a_period_is_the_weeks_that_it_names(text: str, first: str, last: str, length: int) -> None:
    """Calendar periods take the weeks that end in them; a number of units counts back from the end."""
    period = parse_period(text, WEEKS)

    assert period is not None
    assert (WEEKS[period.start].isoformat(), WEEKS[period.stop - 1].isoformat(), period.length) == (first, last, length)


@pytest.mark.parametrize(
    "text", ["", "soon", "last blue weeks", "Q5 2026", "9999999 weeks", "2026-13", "yesterday", "0000-01", "Q4 9999", "may 0000"]
)
def test_a_period_that_is_not_understood_is_none(text: str) -> None:
    """It is not guessed at."""
    assert parse_period(text, WEEKS) is None


def test_a_period_outside_the_data_has_no_weeks() -> None:
    """It is understood, and empty."""
    period = parse_period("Q1 2019", WEEKS)

    assert period is not None
    assert period.length == 0


def test_callers_text_in_a_message_is_short_and_printable() -> None:
    """No control character, no line break, no flood."""
    shown = quoted("a\x00b\nc\u202e" + "x" * 10_000)

    assert len(shown) < 70
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("value", "expected"), [(float("nan"), None), (float("inf"), None), (1 / 3, 0.333333), (True, True), ((1, "a"), [1, "a"])]
)
def test_a_value_becomes_what_json_can_carry(value: Any, expected: Any) -> None:
    """NaN and infinity are null, and numbers have six digits."""
    assert plain(value) == expected
