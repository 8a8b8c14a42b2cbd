"""What a replay shows: the page escapes everything, the terminal takes no text for a command of its own."""

import io
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from optimizers.evaluate import Figure
from optimizers.replay_report import SHOWN_CLUSTERS, write_replay
from optimizers.replay_view import show_replay
from optimizers.replayed import Choice, Cluster, Cost, Logged, Replay

HOSTILE = '<script>alert("1")</script> [red]& </style>'
SHARE = Figure(0.25, 0.2, 0.3, 400)
CLUSTER = Cluster(
    source=Choice("dispatch", "gap_analyzer"),
    target=Choice("ask_lm"),
    mixed=True,
    requests=100,
    texts=40,
    examples=(HOSTILE, "where are the gaps"),
    gains=7,
    losses=11,
    even=13,
    said=5,
    fitted_on=3,
    mended=8.5,
    broken=1_234.0,
    expected_errors=((1.0, 0.0), (2.0, 0.0)),
    latency_ms=(1_500.0, None),
    timeout_ms=(120_000, None),
)
COST = Cost(300, 1_500.0, 290, 120_000.0)
FOUND = Replay(
    old="3",
    new="4",
    requests=400,
    found=900,
    texts=250,
    left_out={"decided by a rule": 12},
    flips=SHARE,
    another_agent=0,
    gains=7,
    losses=11,
    fresh_gains=6,
    fresh_losses=10,
    fitted_on=SHARE,
    mended=8.5,
    broken=1_234.0,
    asked_lm=(Figure(0.0, 0.0, 0.1, 400), SHARE),
    asked_user=(SHARE, SHARE),
    costs=(COST, Cost(0, None, 0, None)),
    logged=(Logged(HOSTILE, "student", 400, 300, 200, 0, 100),),
    clusters=(CLUSTER,),
)
NOTHING = replace(FOUND, clusters=(), logged=(), left_out={}, found=400, fitted_on=Figure(0.0, 0.0, 0.1, 400))


class Elements(HTMLParser):
    """Collects the elements of a page and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names, self.text, self.addresses = set[str](), "", list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, and what it would fetch."""
        self.names.add(tag)
        fetched = (value or "" for name, value in attrs if name in ("src", "href", "xlink:href"))
        self.addresses += [address for address in fetched if not address.startswith("#")]

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


def page_of(found: Replay, folder: Path) -> Elements:
    """Write a page and read it."""
    write_replay(found, folder / "replay.html", alias="champion", stretch="From 2026-03-01 00:00 UTC")
    return Elements((folder / "replay.html").read_text(encoding="utf-8"))


def printed(found: Replay, width: int) -> str:
    """Print on a terminal of some width."""
    text = io.StringIO()
    show_replay(Console(file=text, width=width), found, alias="champion", stretch="From 2026-03-01 00:00 UTC")
    return text.getvalue()


def test_nothing_of_the_data_is_taken_for_html(tmp_path: Path) -> None:
    """Texts and names are shown as they are; nothing runs, nothing is fetched."""
    page = page_of(FOUND, tmp_path)

    assert "script" not in page.names
    assert page.text.count(HOSTILE) == 2
    assert page.addresses == []


def test_the_page_tells_what_flips_and_what_it_does(tmp_path: Path) -> None:
    """Share, risk, cost, what was left out, and that some was learned from."""
    text = " ".join(page_of(FOUND, tmp_path).text.split())

    for part in ("25.0 %", "20.0 % to 30.0 %", "1,234 break", "11 lost", "7 gained", "69 not known", "+100 to the LM", "mixed texts"):
        assert part in text
    for part in ("the latest of 900", "decided by a rule", "fitted on the texts of 25.0 %", "6 known to be gained, 10 known to be lost"):
        assert part in text


def test_a_replay_without_flips_is_a_page_too(tmp_path: Path) -> None:
    """It says so, and warns of nothing."""
    text = page_of(NOTHING, tmp_path).text

    assert "both versions decide every request alike" in text
    assert "fitted on the texts" not in text


def test_what_is_too_much_for_a_page_is_counted(tmp_path: Path) -> None:
    """Clusters beyond those that are shown, with their requests."""
    text = page_of(replace(FOUND, clusters=(CLUSTER,) * (SHOWN_CLUSTERS + 3)), tmp_path).text

    assert "And 3 smaller risks with 300 requests" in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 160], ids=["narrow", "wide"])
def test_a_terminal_shows_texts_as_they_are(width: int) -> None:
    """No markup is read in them; what is risked is there on the narrow one too."""
    text = printed(FOUND, width)

    assert text.count("[red]&") == 2
    assert "1,234 (11)" in text
    assert max(len(line) for line in text.splitlines() if line[:1] in "┏┃┡│├└") <= width
    assert ("where are the gaps" in text) == (width == 160)


def test_a_terminal_says_when_nothing_flips() -> None:
    """No table."""
    text = printed(NOTHING, 80)

    assert "0 would flip" in text
    assert "┏" not in text
