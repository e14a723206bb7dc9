"""A page as text, to be read, searched and quoted: its words in their order, without what only a browser needs.

By the standard parser, which forgives broken pages. Headings, items, links and images are written as in Markdown, with
whole addresses; cells of a table are parted by `|`. Scripts, styles and comments are left out, menus and footers not.
"""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"})
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
"""A reference to a number beyond all characters; one of thousands of digits could not even be read as a number."""


def text_of(page: str, address: str) -> str:
    """The words of an HTML page that was found at `address`."""
    reader = _Reader(address)
    reader.feed(readable(page))
    reader.close()
    return reader.text()


def readable(page: str) -> str:
    """The page without what the parser cannot bear, read as browsers read it: references to what is no character
    are U+FFFD, and sections that HTML does not have are comments."""
    return NO_CHARACTER.sub("\ufffd", page).replace("<![", "<! [")


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._told: list[str] = []
        """Lines, and the line ends between them."""
        self._gap = 0
        """How many line ends are to stand before the next line."""
        self._line: list[str] = []
        """Parts of the line that is open."""
        self._mark = ""
        """What it begins with: of a heading or an item."""
        self._link: tuple[int, str] | None = None
        """The open link: at which part of the line it begins, and where it leads."""
        self._unseen = 0
        self._verbatim = 0

    def text(self) -> str:
        self._end_line(1)
        return "".join(self._told)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in UNSEEN
        if self._unseen:
            return
        self._part(tag)
        self._verbatim += tag == "pre"
        given = dict(attrs)
        if tag in HEADINGS or tag == "li":
            self._mark = f"{HEADINGS.get(tag, '-')} "
        elif tag in CELLS and self._line:
            self._line.append(" | ")
        elif tag == "a":
            self._end_link()
            self._link = (len(self._line), self._whole(given.get("href")))
        elif tag == "img":
            self._line.append(self._image(given.get("alt"), self._whole(given.get("src"))))
        elif tag == "base":
            self._address = self._whole(given.get("href")) or self._address

    def handle_endtag(self, tag: str) -> None:
        if tag in UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        if self._unseen:
            return
        if tag == "a":
            self._end_link()
            self._link = None
        self._part(tag)
        if tag in HEADINGS or tag == "li":
            self._mark = ""
        self._verbatim = max(0, self._verbatim - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._line.append(data)

    def _part(self, tag: str) -> None:
        """A line ends where a tag begins or ends that does not stand within one."""
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
            self._told += ["\n" * self._gap * bool(self._told), self._mark, text]
            self._mark, self._gap = "", 0
        self._gap = max(self._gap, gap)

    def _end_link(self) -> None:
        """Write the open link, as far as the line has it; where it has no words yet, it goes on in the next line."""
        if self._link is None:
            return
        begin, address = self._link
        words = " ".join("".join(self._line[begin:]).split())
        if words and address:
            self._line[begin:] = [f"[{words}]({address})"]
        self._link = None if words else (0, address)

    def _image(self, words: str | None, address: str) -> str:
        """Nothing of one that only decorates, which is what an empty text says, or that is in the page itself."""
        return "" if words == "" or not (words or address) else f"![{words or ''}]({address})"

    def _whole(self, address: str | None) -> str:
        """The whole address; empty where it leads nowhere else."""
        try:
            whole = urljoin(self._address, (address or "").strip())
            leads = urlsplit(whole).scheme in SCHEMES and not (address or "#").startswith("#")
        except ValueError:
            return ""
        return "%20".join(whole.split()) if leads and len(whole) <= LONGEST_ADDRESS else ""
