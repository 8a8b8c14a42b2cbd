"""Personal data leave a text, and nothing else does."""

import random

import pytest
from datafog import scan

from optimizers.dataset import read_rows
from optimizers.scrub import _MAY_HOLD, KINDS, Scrubber
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("mail the gap report to jane.doe+x@acme.co.uk please", "mail the gap report to [EMAIL] please"),
        ("call me at 212-555-5555 or (415) 555-0132", "call me at [PHONE] or [PHONE]"),
        ("my card is 4111 1111 1111 1111", "my card is [CREDIT_CARD]"),
        ("why is 078-05-1120 in the file", "why is [SSN] in the file"),
        ("requests from 10.20.30.40 fail", "requests from [IP_ADDRESS] fail"),
        ("why did Dr. Felicia Ng stop writing Kisqali", "why did Dr. [NAME] stop writing Kisqali"),
        ("a@b.com and c@d.com", "[EMAIL] and [EMAIL]"),
    ],
    ids=["e-mail", "telephone", "card", "social security", "IP", "name after a title", "two of a kind"],
)
def test_personal_data_leave_a_mark_of_their_kind(text: str, scrubbed: str) -> None:
    """Two people's equal requests stay equal: the marks have no numbers."""
    assert Scrubber()(text) == scrubbed


def test_known_identifiers_are_taken_out() -> None:
    """The writer's own id, or a patient's; what is too short to tell from a word stays."""
    scrub = Scrubber()

    assert scrub("patient PT-998811 of rep u-17", known=("PT-998811", "u-17", "a")) == "patient [ID] of rep [ID]"
    assert scrub.replaced == 2


def test_texts_that_are_read_together_are_read_as_each_alone() -> None:
    """Nothing is found over the end of a text, and nothing is missed at one: an American Express number counts at the end of a line."""
    alone, together = Scrubber(), Scrubber()
    halves = [
        "call 212-555",
        "5555 now",
        "mail jane.doe@",
        "acme.com",
        "4111 1111 1111",
        "1111",
        "from 10.20.30",
        "40 of them",
        "078-05",
        "-1120",
    ]
    whole = ["378282246310005", "212-555-5555", "a@b.com", "10.20.30.40", "u-17 asks 10.20.30.40", "u-17 asks 10.20.30.40", "\ue000", ""]
    texts = [*halves, *whole, *(f"{a}\n\ue000\n{b}" for a in whole for b in halves), *(f"{text} {i}" for text in whole for i in range(400))]
    known = [("u-17",) if i % 2 else () for i in range(len(texts))]

    assert together.each(texts, known) == [alone(text, of) for text, of in zip(texts, known, strict=True)]
    assert together.replaced == alone.replaced > len(whole)
    assert together.each(halves, [()] * len(halves)) == halves


def test_what_is_not_looked_at_closely_holds_nothing() -> None:
    """Whatever datafog finds has what a text is picked for: on numbers, addresses and their neighbours, put together at random."""
    draws, found = random.Random(5), 0
    pieces = [*"0123456789", *" .-()+/:@_", "a", "Z", "\n", "12", "4111", "212", "555", "0132", "+44", "+1", "10.", "255.", "@b.com", "me@"]

    for _ in range(20_000):
        text = "".join(draws.choices(pieces, k=draws.randint(1, 14)))
        if scan(text, engine="regex", entity_types=list(KINDS)).entities:
            found += 1
            assert _MAY_HOLD.search(text), text

    assert found > 1_000


def test_requests_of_the_trade_stay_as_they_are() -> None:
    """Periods, counts, HCP ids, brands and log lines are no personal data; names after a title are."""
    scrub = Scrubber()
    rows = read_rows(ROOT / "datasets/seed")

    changed = [(row.text, scrub(row.text)) for row in rows if scrub(row.text) != row.text]

    assert all("[NAME]" in after for _, after in changed), changed
    assert len(changed) < 0.02 * len(rows)


def test_hostile_text_is_scrubbed_in_no_time() -> None:
    """No pattern runs away on long runs of the characters that it looks for."""
    scrub = Scrubber()

    for piece in ("@", "1", "1-", "a@", "Dr. A", ".", "1.", "(1", "+1 "):
        scrub(piece * (4_000 // len(piece)))
