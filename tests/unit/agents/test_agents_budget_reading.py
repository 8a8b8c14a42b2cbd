"""resource_optimizer reads amounts, and what is to be done with them, from the question's text."""

import pytest

from service.agents.allocation.amounts import prepare, read_amounts
from service.agents.allocation.request import read_request

NAMES = ("Northeast", "Midwest", "South", "West", "Kisqali", "Fabhalta", "Remibrutinib")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I have 2.4M left for Q4", [(2400.0, "money", None)]),
        ("capped at $11.5M", [(11500.0, "money", None)]),
        ("5 mio envelope", [(5000.0, "money", None)]),
        ("250 grand and 1,200,000 dollars", [(250.0, "money", None), (1200.0, "money", None)]),
        ("9k boxes for h2", [(9000.0, "count", "samples")]),
        ("the 600 calls", [(600.0, "count", "calls")]),
        ("forty speaker slots", [(40.0, "count", "speaker")]),
        ("two of my reps", [(2.0, "count", "reps")]),
        ("cut 15% in 2027 on decile 9 at 8:05", [(15.0, "percent", None)]),
        ("each rep does eight calls a day", [(8.0, "rate", "calls")]),
        ("1100 calls a quarter", [(1100.0, "count", "calls")]),
        ("4.2M between email and reps", [(4200.0, "money", None)]),
        ("80/20 split in q3", []),
        ("", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_amounts_are_read(text: str, expected: list[tuple[float, str, str | None]]) -> None:
    """Money in k$, counts with their unit, rates apart; years, times, deciles and ratios are no amounts."""
    assert [(one.value, one.kind, one.unit) for one in read_amounts(prepare(text))] == expected


@pytest.mark.parametrize(
    ("text", "mode", "amount", "unit"),
    [
        ("take 15 percent out of promo", "ratio", 0.85, "money"),
        ("we run on half the money", "ratio", 0.5, "money"),
        ("field force from 210 to 180", "ratio", 180 / 210, "reps"),
        ("60 speaker events next year, down from 95", "ratio", 60 / 95, "speaker"),
        ("80k units of samples, down from 120k", "ratio", 80 / 120, "samples"),
        ("finance clawed back 600k", "change", -600.0, "money"),
        ("an additional 1.2 million for H2", "change", 1200.0, "money"),
        ("two of my reps go on leave", "change", -2.0, "reps"),
        ("one more rep, where", "change", 1.0, "reps"),
        ("dinner slots: 25. cities that want one: 40", "total", 25.0, "speaker"),
        ("how many reps do we need", "size", 0.0, "reps"),
        ("the best channel mix, same total", "flat", 0.0, "money"),
        ("sell 5% more: best mix", "flat", 0.0, "money"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_to_be_done_with_the_amount_is_read(text: str, mode: str, amount: float, unit: str) -> None:
    """A total, a cut, an addition, a ratio, a size to be found, or nothing but a better split."""
    request = read_request(text, NAMES)

    assert (request.mode, request.unit) == (mode, unit)
    assert request.amount == pytest.approx(amount)
