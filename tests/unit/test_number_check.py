"""A number is covered by the same number, however it is written; another size of it is another number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.number_check import foreign_numbers

OTHERS = {
    "millions of a count": ("It fell by 12 million.", "12 HCPs were seen"),
    "billions of a count": ("It costs $3bn.", "3 regions lag behind"),
    "per cent of a count": ("12% of them answered.", "12 patients answered"),
    "digits with nothing between": ("It fell by 9\u200b9.", "It fell by 9."),
    "thousands of millions": ("It is 12,000.", "It is 12 million."),
}
SAME = {
    "a scale in full": ("It is 12,000,000.", "It is 12 million."),
    "a scale in letters": ("It is $1.2m.", "It is 1,200,000 dollars."),
    "a scale in words": ("It is 3 thousand.", "It is 3000."),
    "a share": ("It is 12 %.", "uplift 0.12"),
    "a percentage": ("It is 12 percent.", "12%"),
    "percentage points": ("It rose 4 percentage points.", "It rose 4 pp."),
    "a field in per cent": ("It rose by 12%.", "uplift_pct: 12"),
    "a share of a percentage": ("The share is 0.12.", "12 %"),
    "metres, or millions": ("It lies 5 m away.", "It lies 5 m away."),
    "full width": ("It is \uff11\uff12.", "It is 12."),
    "no figure": ("One of the regions fell first.", "It fell."),
}


@pytest.mark.parametrize(("text", "finding"), OTHERS.values(), ids=OTHERS.keys())
def test_another_size_of_a_number_is_another_number(text: str, finding: str) -> None:
    """Its text is not shown."""
    assert len(foreign_numbers(text, [finding])) == 1


@pytest.mark.parametrize(("text", "finding"), SAME.values(), ids=SAME.keys())
def test_a_number_may_be_written_another_way(text: str, finding: str) -> None:
    """Or honest texts would be refused."""
    assert foreign_numbers(text, [finding]) == []


@given(st.text(alphabet="0123456789.,%kmM bnpct:-_ \u200b\u00a0e+million", max_size=60))
def test_a_text_is_covered_by_itself(text: str) -> None:
    """Whatever it says."""
    assert foreign_numbers(text, [text]) == []
