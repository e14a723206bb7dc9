"""What can be counted in a text, and nothing that cannot: every figure of the critique comes from here."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from reading import Reading

# Typographic marks are written as escapes: apostrophe and closing quotes, then the full stops of East Asia.
CLOSING = "\"'\u201d\u2019)]"
STOPS = ".!?…\u3002\uff01\uff1f"
WORD = re.compile("[^\\W_]+(?:['\u2019-][^\\W_]+)*")
SENTENCE_END = re.compile("(?<=[.!?…])[\"'\u201d\u2019)\\]]*\\s+|(?<=[\u3002\uff01\uff1f])")
ABBREVIATION = re.compile(r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|approx|No|Fig)\.$")
FEWEST_WORDS_OF_A_SENTENCE = 6
ENGLISH_SHARE = 0.2

FUNCTION_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few for from further had has have having he her here hers him his
    how i if in into is it its itself just me more most my no nor not of off on once one only or other our ours out
    over own same she should so some such than that the their theirs them then there these they this those through to
    too under until up us very was we were what when where which while who whom why will with would you your yours
    it's we're you're don't i'm we've you'll that's may might must shall get got make makes made use used every many
    much even still since without within per via""".split()  # noqa: SIM905 - a hundred quoted words would be hard to read
)
FILLERS = frozenset({"very", "really", "just", "simply", "actually", "quite", "basically", "truly", "extremely"})
VAGUE_LINKS = frozenset({"click here", "here", "read more", "more", "learn more", "link", "this", "this link", "click"})


@dataclass(frozen=True)
class Facts:
    """The measurements. Lengths are in words; `readability` is the Flesch reading ease, for English prose only."""

    words: int
    distinct_words: int
    words_in_sentences: int
    sentences: int
    average_sentence: float
    longest_sentence: int
    longest_sentence_text: str
    first_sentence: int
    blocks: int
    longest_block: int
    readability: int | None
    english: bool
    frequent: tuple[tuple[str, int], ...]
    fillers: tuple[tuple[str, int], ...]
    opener: tuple[str, int]
    you: int
    we: int
    figures: int
    exclamations: int
    headings: int
    top_headings: int
    skipped_levels: int
    links: int
    vague_links: tuple[str, ...]
    images: int
    images_without_text: int


def measure(reading: Reading) -> Facts:
    """Every figure that the critique may use."""
    sentences = [sentence for block in reading.blocks for sentence in sentences_of(block)]
    lengths = [len(words_of(sentence)) for sentence in sentences]
    longest = max(zip(lengths, sentences, strict=True), default=(0, ""))
    words = [
        word.lower() for text in (*(text for _, text in reading.headings), *reading.blocks) for word in words_of(text)
    ]
    counted = Counter(words)
    english = sum(counted[word] for word in FUNCTION_WORDS) >= ENGLISH_SHARE * len(words) > 0
    levels = [level for level, _ in reading.headings]
    return Facts(
        words=len(words),
        distinct_words=len(counted),
        words_in_sentences=sum(lengths),
        sentences=len(sentences),
        average_sentence=round(sum(lengths) / len(lengths), 1) if lengths else 0.0,
        longest_sentence=longest[0],
        longest_sentence_text=longest[1],
        first_sentence=lengths[0] if lengths else 0,
        blocks=len(reading.blocks),
        longest_block=max((len(words_of(block)) for block in reading.blocks), default=0),
        readability=_flesch(sentences) if english and len(sentences) >= 3 else None,
        english=english,
        frequent=_frequent(counted) if english else (),
        fillers=tuple(Counter({word: counted[word] for word in FILLERS if counted[word]}).most_common(2)),
        opener=_opener(sentences),
        you=sum(counted[word] for word in ("you", "your", "yours", "you're", "you'll")),
        we=sum(counted[word] for word in ("we", "our", "ours", "us", "we're", "we've")),
        figures=sum(any(map(str.isdigit, word)) for word in words),
        exclamations=sum(sentence.rstrip(CLOSING).endswith("!") for sentence in sentences),
        headings=len(levels),
        top_headings=levels.count(1),
        skipped_levels=sum(after > before + 1 for before, after in pairwise(levels)),
        links=len(reading.links),
        vague_links=tuple(link for link in reading.links if link.lower().strip(" .…»→") in VAGUE_LINKS),
        images=reading.images,
        images_without_text=reading.images_without_text,
    )


def words_of(text: str) -> list[str]:
    """The words, with inner apostrophes and hyphens."""
    return WORD.findall(text.replace("\u2019", "'"))


def sentences_of(block: str) -> list[str]:
    """The sentences of a block: pieces with an end mark, or long enough to be one; labels and cells are neither."""
    pieces: list[str] = []
    for piece in SENTENCE_END.split(block):
        if pieces and ABBREVIATION.search(pieces[-1]):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    return [piece for piece in pieces if _is_sentence(piece)]


def _is_sentence(piece: str) -> bool:
    ended = piece.rstrip(CLOSING).endswith(tuple(STOPS))
    return len(words_of(piece)) >= (2 if ended else FEWEST_WORDS_OF_A_SENTENCE)


def _frequent(counted: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Up to five content words that occur at least twice; a plural counts with its singular."""
    folded: Counter[str] = Counter()
    for word, times in counted.items():
        if len(word) > 2 and word.isalpha() and word not in FUNCTION_WORDS and word not in FILLERS:
            singular = word[:-1] if word.endswith("s") and word[:-1] in counted else word
            folded[singular] += times
    return tuple((word, times) for word, times in folded.most_common(5) if times > 1)


def _opener(sentences: list[str]) -> tuple[str, int]:
    first = Counter(words[0].lower() for sentence in sentences if (words := words_of(sentence)))
    return first.most_common(1)[0] if first else ("", 0)


def _flesch(sentences: list[str]) -> int:
    words = [word for sentence in sentences for word in words_of(sentence)]
    syllables = sum(map(_syllables, words))
    return round(206.835 - 1.015 * len(words) / len(sentences) - 84.6 * syllables / len(words))


def _syllables(word: str) -> int:
    """Groups of vowels, less a silent ending: an estimate that is good over many words."""
    word = word.lower()
    groups = len(re.findall(r"[aeiouy]+", word))
    silent = re.search(r"[^aeiouyl]e$|[^aeiouytd]ed$|[^aeiouyscxzgh]es$", word)
    return max(1, groups - bool(silent))
