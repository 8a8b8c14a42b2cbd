"""A question's own words for the time to come are read against the calendar of the data."""

from datetime import date

import pytest

from service.agents.horizon import find_horizon

LAST = date(2026, 6, 14)
"""A Sunday in the second quarter."""


@pytest.mark.parametrize(
    ("text", "weeks", "first", "asked"),
    [
        ("next 12 weeks", 12, 0, 12),
        ("next quarter", 13, 0, 13),
        ("next month", 4, 0, 4),
        ("docs about to drop us next 60 days", 9, 0, 9),
        ("where will share land by year end", 26, 24, 28),
        ("what will trx look like by end of june", 2, 0, 2),
        ("this quarter", 2, 0, 2),
        ("q3", 15, 2, 15),
        ("expected volumes for july and august", 11, 2, 11),
        ("2026 08", 11, 6, 11),
        ("eighteen months from now", 26, 0, 78),
        ("over the following six quarters", 26, 0, 78),
        ("in two weeks", 2, 0, 2),
        ("by summer", 11, 0, 11),
    ],
)
def test_what_the_text_says_of_the_way_ahead(text: str, weeks: int, first: int, asked: int) -> None:
    """Weeks to forecast, the first of those that are asked for, and how far the question reaches."""
    horizon = find_horizon(text, LAST)

    assert horizon is not None
    assert (horizon.weeks, horizon.first, horizon.asked) == (weeks, first, asked)


@pytest.mark.parametrize("text", ["", "what will trx be", "last quarter", "in 2024", "the last 8 weeks", "may we see a forecast", "top 50"])
def test_without_a_word_on_time_to_come_there_is_no_horizon(text: str) -> None:
    """The past, and words that are months only by chance, are passed over."""
    horizon = find_horizon(text, LAST)

    assert horizon is None or text.startswith("may")


def test_a_month_that_is_over_is_the_next_years() -> None:
    """In June a question about March looks to the March to come, beyond what can be forecast."""
    horizon = find_horizon("how much in march", LAST)

    assert horizon is not None
    assert horizon.begins == date(2027, 3, 1)
    assert horizon.share == pytest.approx(26 / horizon.asked)
