"""The visible text of a page, and figures about it.

The standard parser, which forgives broken pages, reads HTML; everything else counts as Markdown. Scripts, styles,
navigation, footers and form controls are left out.
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

HIDDEN = {
    *("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"),
    *("nav", "footer", "button", "select", "textarea", "label"),
}
HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
INLINE = {"a", "abbr", "b", "cite", "code", "em", "i", "kbd", "mark", "q", "s", "small", "span", "strong", "sub", "u"}
VAGUE = {"click here", "here", "read more", "more", "learn more", "link", "this", "this link", "click"}
COMMON = {
    *("the", "of", "and", "to", "in", "is", "it", "that", "you", "for", "on", "with", "as", "are", "this", "be", "at"),
    *("or", "from", "have", "not", "we", "by", "an", "your"),
}
ENGLISH_SHARE = 0.15
NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")
"""A character reference with a number beyond Unicode. Python refuses to read one of thousands of digits."""
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
NO_TAG = re.compile(r"""<(?![a-z/!?](?>[^<>"']+|"[^"<]*"|'[^'<]*'|["'])*+>)""", re.IGNORECASE)
"""A `<` without a whole tag. The parser searches the rest of the page for the end of each: 8 seconds for 58 kB."""
WORD = re.compile("[^\\W_]+(?:['\u2019-][^\\W_]+)*")
SENTENCE_END = re.compile("(?<=[.!?…])[\"'\u201d\u2019)\\]]*\\s+|(?<=[\u3002\uff01\uff1f])")
IMAGE, LINK = r"!\[([^\[\]\n]{0,500})\]\([^)\[\n]{0,2000}\)", r"\[([^\[\]\n]{1,500})\]\([^)\[\n]{0,2000}\)"


@dataclass
class Reading:
    """`blocks`: paragraphs and list items. `links`: their texts."""

    markup: bool
    title: str = ""
    headings: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    images: int = 0
    images_without_text: int = 0


@dataclass(frozen=True)
class Facts:
    """Figures of a text. Lengths are in words; `readability` is the Flesch reading ease, for English prose only."""

    words: int
    sentences: int
    average_sentence: float
    longest_sentence: int
    longest_sentence_text: str
    readability: int | None
    headings: int
    links: int
    vague_links: tuple[str, ...]
    images: int
    images_without_text: int


def read(text: str, content_type: str = "") -> Reading:
    """Reads a page or a text; its content type or first tags mark HTML."""
    begins = re.match(r"\s*<(!doctype|html|head|body|title|h[1-6]|p|div|article)\b", text, re.IGNORECASE)
    if "html" not in content_type and not begins:
        return _read_markdown(text)
    page = _Page()
    page.feed(_parseable(text))
    page.close()
    page.flush()
    return page.reading


def measure(reading: Reading) -> Facts:
    """Computes every figure that a critique may use."""
    sentences = [sentence for block in reading.blocks for sentence in SENTENCE_END.split(block) if words_of(sentence)]
    lengths = [len(words_of(sentence)) for sentence in sentences]
    longest = max(zip(lengths, sentences, strict=True), default=(0, ""))
    words = [word.lower() for text in (*reading.headings, *reading.blocks) for word in words_of(text)]
    english = sum(word in COMMON for word in words) >= ENGLISH_SHARE * len(words) > 0
    return Facts(
        words=len(words),
        sentences=len(sentences),
        average_sentence=round(sum(lengths) / len(lengths), 1) if lengths else 0.0,
        longest_sentence=longest[0],
        longest_sentence_text=longest[1],
        readability=_flesch(sentences) if english and len(sentences) >= 3 else None,
        headings=len(reading.headings),
        links=len(reading.links),
        vague_links=tuple(link for link in reading.links if link.lower().strip(" .…»→") in VAGUE),
        images=reading.images,
        images_without_text=reading.images_without_text,
    )


def words_of(text: str) -> list[str]:
    """Returns the words, with inner apostrophes and hyphens."""
    return WORD.findall(text)


def _parseable(page: str) -> str:
    """Replaces what the parser fails on or takes long for: invalid character references, marked sections, and tags and
    comments without an end."""
    ends = page.rfind("-->") + len("-->")
    page = COMMENT.sub(" ", page[:ends]) + page[ends:].partition("<!--")[0] if "<!--" in page else page
    return NO_TAG.sub("&lt;", NO_CHARACTER.sub("\ufffd", page).replace("<![", "<! ["))


def _flesch(sentences: list[str]) -> int:
    """Returns the reading ease. It counts a syllable per group of vowels."""
    words = [word.lower() for sentence in sentences for word in words_of(sentence)]
    syllables = sum(max(1, len(re.findall("[aeiouy]+", word.removesuffix("e")))) for word in words)
    return round(206.835 - 1.015 * len(words) / len(sentences) - 84.6 * syllables / len(words))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.reading = Reading(markup=True)
        self._text: list[str] = []
        self._link: list[str] | None = None
        self._hidden = 0
        self._within = ""
        """The open heading or title."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self.flush()
        self._hidden += tag in HIDDEN
        if tag == "title" or tag in HEADINGS:
            self._within = tag
        elif tag == "a" and "href" in dict(attrs):
            self._link = []
        elif tag == "img":
            self.reading.images += 1
            # An empty text is right for an image that only decorates; a missing one never is.
            self.reading.images_without_text += "alt" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in INLINE:
            self.flush()
        if tag in HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag == self._within:
            self._within = ""
        if tag == "a" and self._link is not None:
            self.reading.links.append(_line(self._link))
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._link is not None:
            self._link.append(data)
        if not self._hidden:
            self._text.append(data)

    def flush(self) -> None:
        """Ends the text so far as a title, a heading or a block."""
        text = _line(self._text)
        self._text.clear()
        if text and self._within == "title":
            self.reading.title = self.reading.title or text
        elif text:
            (self.reading.headings if self._within else self.reading.blocks).append(text)


def _line(parts: list[str]) -> str:
    return " ".join("".join(parts).split())


def _read_markdown(text: str) -> Reading:
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    images = re.findall(IMAGE, text)
    text = re.sub(IMAGE, " ", text)
    without_text = sum(not image.strip() for image in images)
    reading = Reading(markup=False, links=re.findall(LINK, text), images=len(images), images_without_text=without_text)
    # Headings and items of lists are blocks of their own, whether or not blank lines surround them.
    text = re.sub(r"^(#{1,6} .*)$", r"\n\1\n", re.sub(LINK, r"\1", text), flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+] |\d+[.)] ))", text):
        bare = re.sub(r"[*_`]{1,3}(\S[^*_`\n]{0,500})[*_`]{1,3}", r"\1", block.strip())
        if line := _line([re.sub(r"^(?:#{1,6}|[-*+>]|\d+[.)]) +", "", bare).rstrip("#")]):
            (reading.headings if re.match("#{1,6} ", bare) else reading.blocks).append(line)
    return reading
