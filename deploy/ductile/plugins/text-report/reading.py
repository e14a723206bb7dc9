"""A page or text taken apart into what a reader sees: title, headings, blocks of prose, links, images.

HTML by the standard parser, which forgives broken pages; anything else as Markdown, of which plain text is a case.
Scripts, styles, navigation, footers and form controls are not part of what is read.
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

UNSEEN = {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"}
APART = {"nav", "footer", "button", "select", "textarea", "label"}
HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "form", "header", "hr", "html", "li", "main", "ol", "p", "pre", "section", "summary"),
    *("table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", *UNSEEN, *APART, *HEADINGS),
}


@dataclass
class Reading:
    """What a reader sees. `headings` are (level, text); `links` are their texts; `blocks` are paragraphs and items."""

    markup: bool
    title: str = ""
    language: str = ""
    description: str = ""
    headings: list[tuple[int, str]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    images: int = 0
    images_without_text: int = 0


def read(text: str, content_type: str = "") -> Reading:
    """The reading of a page or text; HTML is told by its content type or its first tags."""
    if "html" in content_type or re.match(
        r"\s*<(!doctype|html|head|body|title|h[1-6]|p|div|article)\b", text, re.IGNORECASE
    ):
        page = _Page()
        page.feed(text)
        page.close()
        page.flush()
        return page.reading
    return _read_markdown(text)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.reading = Reading(markup=True)
        self._text: list[str] = []
        self._link: list[str] | None = None
        self._title: list[str] | None = None
        self._hidden = 0
        self._level = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in BLOCKS:
            self.flush()
        self._hidden += tag in UNSEEN or tag in APART
        self._level = HEADINGS.get(tag, self._level)
        if tag == "html":
            self.reading.language = given.get("lang", "")
        elif tag == "meta" and given.get("name", "").lower() == "description":
            self.reading.description = given.get("content", "").strip()
        elif tag == "img":
            self.reading.images += 1
            # An empty text is right for an image that only decorates; a missing one never is.
            self.reading.images_without_text += "alt" not in given
        self._open_text(tag, given)

    def _open_text(self, tag: str, given: dict[str, str]) -> None:
        if tag == "a" and "href" in given:
            self._link = []
        elif tag == "title" and not self._hidden and not self.reading.title:
            self._title = []
        elif tag in ("br", "img"):
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.flush()
        if tag in HEADINGS:
            self._level = 0
        if tag in UNSEEN or tag in APART:
            self._hidden = max(0, self._hidden - 1)
        if tag == "a" and self._link is not None:
            self.reading.links.append(_line(self._link))
            self._link = None
        if tag == "title" and self._title is not None:
            self.reading.title = _line(self._title)
            self._title = None

    def handle_data(self, data: str) -> None:
        if self._title is not None:
            self._title.append(data)
            return
        if self._link is not None:
            self._link.append(data)
        if not self._hidden:
            self._text.append(data)

    def flush(self) -> None:
        """The text so far is a heading or a block of its own."""
        text = _line(self._text)
        self._text.clear()
        if text and self._level:
            self.reading.headings.append((self._level, text))
        elif text:
            self.reading.blocks.append(text)


def _line(parts: list[str]) -> str:
    return " ".join("".join(parts).split())


def _read_markdown(text: str) -> Reading:
    reading = Reading(markup=False)
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    pictures = re.findall(r"!\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)", text)
    reading.images, reading.images_without_text = len(pictures), sum(not picture.strip() for picture in pictures)
    text = re.sub(r"!\[[^\]\n]{0,500}\]\([^)\n]{0,2000}\)", " ", text)
    reading.links = re.findall(r"\[([^\]\n]{1,500})\]\([^)\n]{0,2000}\)", text)
    text = re.sub(r"\[([^\]\n]{1,500})\]\([^)\n]{0,2000}\)", r"\1", text)
    # Headings and items of lists are blocks of their own, whether or not blank lines surround them.
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:#{1,6} |[-*+] |\d+[.)] ))|(?<=\n)(?=#{1,6} )", text):
        _add_block(block.strip(), reading)
    return reading


def _add_block(block: str, reading: Reading) -> None:
    heading, _, rest = block.partition("\n")
    if found := re.match(r"(#{1,6}) +(.*?)#*$", heading):
        reading.headings.append((len(found[1]), found[2].strip()))
        block = rest
    block = re.sub(r"^\s*(?:[-*+>]|\d+[.)]) +", "", block, flags=re.MULTILINE)
    if line := _line([re.sub(r"[*_`]{1,3}(\S[^*_`\n]{0,500})[*_`]{1,3}", r"\1", block)]):
        reading.blocks.append(line)
