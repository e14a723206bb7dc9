"""An HTML page as text to read, search and quote: its words in order, without scripts, styles and comments.

The standard parser forgives broken pages. Headings, items, links and images become Markdown with absolute addresses;
`|` separates the cells of a table. Menus and footers stay.
"""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"})
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
LINES = frozenset({"br", "dd", "div", "dt", "figcaption", "hr", "li", "option", "summary", "tr"})
PARAGRAPHS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "details", "dl", "fieldset", "figure", "footer", "form"),
        *("header", "main", "nav", "ol", "p", "pre", "section", "table", "title", "ul", *HEADINGS),
    }
)
CELLS = frozenset({"td", "th"})
SCHEMES = frozenset({"http", "https", "mailto"})
LONGEST_ADDRESS = 2000
NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")
"""A character reference with a number beyond Unicode. Python refuses to read one of thousands of digits."""


def text_of(page: str, address: str) -> str:
    """Returns the words of the HTML page at `address`."""
    reader = _Reader(address)
    reader.feed(readable(page))
    reader.close()
    return reader.text()


def readable(page: str) -> str:
    """Replaces what the parser fails on, as browsers do: invalid character references by U+FFFD, and marked sections
    by comments."""
    return NO_CHARACTER.sub("\ufffd", page).replace("<![", "<! [")


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._text: list[str] = []
        """Lines, and the line ends between them."""
        self._gap = 0
        """Line ends before the next line."""
        self._line: list[str] = []
        """Parts of the open line."""
        self._mark = ""
        """Prefix of the open line: of a heading or an item."""
        self._link: tuple[int, str] | None = None
        """The open link: the part of the line where it begins, and its address."""
        self._hidden = 0
        self._verbatim = 0

    def text(self) -> str:
        self._end_line(1)
        return "".join(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in HIDDEN
        if self._hidden:
            return
        self._break_line(tag)
        self._verbatim += tag == "pre"
        given = dict(attrs)
        if tag in HEADINGS or tag == "li":
            self._mark = f"{HEADINGS.get(tag, '-')} "
        elif tag in CELLS and self._line:
            self._line.append(" | ")
        elif tag == "a":
            self._end_link()
            self._link = (len(self._line), self._absolute(given.get("href")))
        elif tag == "img":
            self._line.append(self._image(given.get("alt"), self._absolute(given.get("src"))))
        elif tag == "base":
            self._address = self._absolute(given.get("href")) or self._address

    def handle_endtag(self, tag: str) -> None:
        if tag in HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if self._hidden:
            return
        if tag == "a":
            self._end_link()
            self._link = None
        self._break_line(tag)
        if tag in HEADINGS or tag == "li":
            self._mark = ""
        self._verbatim = max(0, self._verbatim - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._line.append(data)

    def _break_line(self, tag: str) -> None:
        """Ends the line at a block element."""
        if tag in LINES:
            self._end_line(1)
        elif tag in PARAGRAPHS:
            self._end_line(2)

    def _end_line(self, gap: int) -> None:
        self._end_link()
        text = "".join(self._line)
        text = text.strip("\r\n") if self._verbatim else " ".join(text.split())
        self._line.clear()
        if text.strip():
            self._text += ["\n" * self._gap * bool(self._text), self._mark, text]
            self._mark, self._gap = "", 0
        self._gap = max(self._gap, gap)

    def _end_link(self) -> None:
        """Writes the open link into the line; a link without words yet continues in the next line."""
        if self._link is None:
            return
        begin, address = self._link
        words = " ".join("".join(self._line[begin:]).split())
        if words and address:
            self._line[begin:] = [f"[{words}]({address})"]
        self._link = None if words else (0, address)

    def _image(self, words: str | None, address: str) -> str:
        """Returns "" for decoration, which has an empty text, and for an image inside the page."""
        return "" if words == "" or not (words or address) else f"![{words or ''}]({address})"

    def _absolute(self, address: str | None) -> str:
        """Returns the absolute address; "" for one within the page, of another scheme, or too long."""
        try:
            whole = urljoin(self._address, (address or "").strip())
            is_link = urlsplit(whole).scheme in SCHEMES and not (address or "#").startswith("#")
        except ValueError:
            return ""
        return "%20".join(whole.split()) if is_link and len(whole) <= LONGEST_ADDRESS else ""
