"""What is said of a catalogue of which a router has seen only a part."""

import pytest

from service.catalog.coverage import NAMED, name_some, without_examples


def test_intents_that_are_no_labels_are_found_in_their_order() -> None:
    """Labels that are no intents do not matter here."""
    assert without_examples(["c", "a", "b"], ("a", "oos")) == ("c", "b")


@pytest.mark.parametrize(
    ("count", "ending"), [(1, "i0"), (NAMED, f"i{NAMED - 1}"), (NAMED + 1, " and 1 more"), (10_000, " and 9,990 more")], ids=str
)
def test_many_names_are_cut_and_the_others_counted(count: int, ending: str) -> None:
    """A catalogue of thousands still fits a line."""
    text = name_some([f"i{i}" for i in range(count)])

    assert text.startswith("i0")
    assert text.endswith(ending)
    assert len(text) < 100
