"""What agents, LMs and users have written, as text that nothing carries out.

No markup of HTML, no remote image or link of Markdown, and no characters that steer a terminal or turn around the order of a line. The text
reads the same wherever Markdown is shown.
"""

import re

from service.contracts.notice import Notice
from service.contracts.output import AgentResult

# CommonMark 0.31: what `<` begins is HTML or an autolink only before a letter, `/`, `!` or `?` (6.5, 6.6); a link is `](` (6.3), or refers
# to a definition, which is `]:` (4.7) before anything but two plain words. A character reference is never read as markup (2.5).
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"""(?<=\])(?:\(|:(?! [\w.,%+-]+ [^\s"'(]))""")
# Halves of surrogate pairs, control characters but tab and new line, and those that reorder text (Unicode UAX 9; CVE-2021-42574)
_STEERING = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return the text with its markup escaped; what is no markup stays as it is."""
    return _LINK.sub(lambda found: f"&#{ord(found[0])};", _TAG.sub("&lt;", _STEERING.sub("", text)))


def harmless_result(result: AgentResult) -> AgentResult:
    """Return a result whose error is harmless text; its data stay as the agent sent them."""
    return result if result.error is None else result.model_copy(update={"error": harmless(result.error)})


def harmless_notice(notice: Notice) -> Notice:
    """Return a notice whose message is harmless text."""
    return notice.model_copy(update={"message": harmless(notice.message)})
