"""Citation check: finds the quotes of a model's claims in their sources. It records the findings and decides nothing.

A step's result and its artifacts are searched in full, including what the prompt cut. A binary artifact is searched
through the results that name it. A quote may match texts and numbers of a result, and field names together with their
values; fields about the call itself and the requested address do not count, because the caller wrote them.

White space, typographic quotes and dashes, and escaped `<` are equal; invisible characters count by their sign. A quote
must begin and end at word borders: `12` is not in `112` or `12.5`. Both texts are folded into one form with marked
borders, so the search is linear.
"""

import asyncio
import html
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import lru_cache
from itertools import islice

from pydantic import JsonValue

from agent_service.core.acting import CALL_FIELDS, artifacts_in, result_output
from agent_service.core.events import QuoteCheck, ToolReturned
from agent_service.core.framing import PERSON, places_to_check, step_at
from agent_service.core.phases import ItemClaim
from agent_service.core.state import RunState, StepRecord
from agent_service.core.waiting import AGAIN
from agent_service.errors import ArtifactReplaced
from agent_service.run.ports import ArtifactReader
from agent_service.store.runs import RunStore
from groundwork.service.errors import TryAgain
from groundwork.service.invisible import with_signs, without_hidden
from schemas.events import ToolResult
from schemas.values import dataclass

LONGEST = 1000
LEAST = 4
"""Letters and digits of a quote. Shorter quotes match by chance, so they must be a whole line or value, such as `42` or
`yes`.
"""
MOST_MARKS = 9
"""Pairs of quotation marks around a quote; each takes a search of its end."""
LONGEST_LINE = 80
"""Characters of a line that a short quote may be."""
_UNSPACED = "\u0e00"
"""Scripts from here on put no space between words."""
_BORDER = "\1"
_WORD = re.compile(r"(\w+(?:(?<=\d)[.,](?=\d)\w+)*)")
_ALIKE = {"'": "‘’‚‛`´", '"': "“”„‟«»", "-": "‐‑‒–—−", "<": "\ufe64\uff1c", " ": _BORDER}  # noqa: RUF001 # that is what they are here for
_FOLDED = str.maketrans({char: one for one, normalized in _ALIKE.items() for char in normalized})
_PAIRS = frozenset(('""', "“”", "„“", "''", "‘’", "``", "«»"))  # noqa: RUF001 # same
_ENDS = ".,:;!?"
_DOTS = re.compile(r"^(?:\.\.\.|…)|(?:\.\.\.|…)$")
_WITHIN_A_WORD = re.compile(r"</?(?:a|abbr|b|code|em|i|mark|s|small|span|strong|sub|sup|u)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_OF_A_FIELD = re.compile(r'": ?[\[{"]*[^\s\[\]{}",:]')
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")
"""Number beyond all code points; Python cannot parse one of thousands of digits."""


def stands_in(quote: str, text: str) -> bool:
    if len(quote) > 4 * LONGEST:  # `<` may be written in four characters
        return False
    bare = _bare(quote)
    if len(bare) > LONGEST or not any(map(str.isalnum, bare)):
        return False
    if is_short(bare):
        lines = (line for form in _forms(text) for line in form.splitlines() if len(line) <= LONGEST_LINE)
        folded = _line(quote)
        return any(_line(line) == folded for line in lines)
    folded = _folded(quote)
    return any(folded in form for form in readings(text))


def is_short(bare: str) -> bool:
    return sum(2 if char >= _UNSPACED else 1 for char in bare if char.isalnum()) < LEAST


@lru_cache(maxsize=1)
def readings(text: str) -> tuple[str, ...]:
    """The text as it is and, for HTML, as a reader sees it. The quotes of a piece are searched one after the other."""
    forms = dict.fromkeys(form for each in _forms(text) for form in (with_signs(each), without_hidden(each)))
    return tuple(_with_borders(_normalized(form)) for form in forms)


def names_a_field(quote: str) -> bool:
    return bool(_OF_A_FIELD.search(_normalized(_bare(quote))))


def _folded(quote: str) -> str:
    normalized = _normalized(_bare(with_signs(quote)))
    folded = _with_borders(normalized)
    folded = folded if _is_whole(normalized[0]) else folded.removeprefix(_BORDER)
    return folded if _is_whole(normalized[-1]) else folded.removesuffix(_BORDER)


def _line(text: str) -> str:
    return _normalized(_bare(with_signs(text).rstrip(_ENDS)).rstrip(_ENDS))


def _normalized(text: str) -> str:
    return " ".join(text.replace("&lt;", "<").translate(_FOLDED).split())


def _with_borders(normalized: str) -> str:
    return _BORDER.join(_WORD.split(normalized))


def _bare(quote: str) -> str:
    bare = quote.replace("&lt;", "<")
    for _ in range(MOST_MARKS):
        bare = _DOTS.sub("", bare.strip()).strip()
        if len(bare) < 2 or bare[0] + bare[-1] not in _PAIRS:
            break
        bare = bare[1:-1]
    return bare


def _is_whole(char: str) -> bool:
    return char.isdigit() or (char.isalnum() and char < _UNSPACED)


def _forms(text: str) -> tuple[str, ...]:
    if "<" not in text:
        return (text,)
    return text, html.unescape(_NO_CHARACTER.sub("\ufffd", _TAG.sub(" ", _WITHIN_A_WORD.sub("", text))))


ADDRESSES = ("url", "final_url")
LONGEST_ADDRESS = 4000
NOT_CONTENT = CALL_FIELDS | {"said_by"}


def texts_of(output: dict[str, JsonValue], quote: str) -> tuple[str, ...]:
    content = {name: value for name, value in output.items() if name not in NOT_CONTENT}
    if was_asked(output, quote):
        addresses = [address for name in ADDRESSES if isinstance(address := content.pop(name, None), str) and address]
        texts = tuple(_leaves(content))
        for address in addresses:
            texts = tuple([text.replace(address, " ") for text in texts])
        return texts
    as_json = (json.dumps(content, ensure_ascii=False, sort_keys=True),) if names_a_field(quote) else ()
    return *as_json, *_leaves(content)


def was_asked(output: dict[str, JsonValue], quote: str) -> bool:
    asked = output.get(ADDRESSES[0])
    if not isinstance(asked, str) or len(asked) > LONGEST_ADDRESS:
        return False
    fields = (json.dumps({name: asked}, ensure_ascii=False) for name in ADDRESSES)
    return stands_in(quote, _APART.join((asked, *fields)))


def _leaves(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        if not any(isinstance(inner, dict | list) for inner in value):
            yield json.dumps(value, ensure_ascii=False)
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        written = json.dumps(value, ensure_ascii=False)
        yield from dict.fromkeys((value, written[1:-1]) if isinstance(value, str) else (written,))


_APART = "\n\0\n"
"""Separates texts that a quote must not span."""
PIECE, OVERLAP = 128 * 1024, 8 * 1024
"""Characters searched before other turns may run; the overlap is longer than any quote."""
MOST_QUOTES = 40
"""Each source that a claim names counts as one."""
TOO_MANY = f"{MOST_QUOTES} quotes of a reply are looked up: claim what is left with the next"
GONE = "is not there any more"
ASKED = "it is of the address that was asked for: quote what was brought"
SHORT = "it is short: quote some words around it, too"
NO_TEXT = "it is no text: quote what the result that names it says"
_BETWEEN_WORDS = re.compile(r"\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSource:
    """Texts in which quotes are searched. `why`: what could not be read."""

    outputs: tuple[dict[str, JsonValue], ...] = ()
    texts: tuple[str, ...] = ()
    why: str = ""

    async def misses(self, quotes: list[str]) -> dict[str, str]:
        """The quotes that it does not have, with the reason."""
        missed, alike = dict[str, str](), defaultdict[tuple[bool, ...], list[str]](list)
        for quote in quotes:  # those that are searched in the same text
            alike[names_a_field(quote), *(was_asked(output, quote) for output in self.outputs)].append(quote)
        for (_, *asked), same in alike.items():
            left, brought = same, (text for output in self.outputs for text in texts_of(output, same[0]))
            for piece in pieces(_APART.join((*brought, *self.texts))):
                left = [quote for quote in left if not stands_in(quote, piece)]
                await asyncio.sleep(0)
            for quote in left:
                missed[quote] = self.why or (ASKED if any(asked) else SHORT if is_short(_bare(quote)) else "")
        return missed


@dataclass(slots=True)
class CitationChecker:
    store: RunStore
    artifacts: ArtifactReader

    async def check(self, state: RunState, claims: Iterable[ItemClaim]) -> tuple[QuoteCheck, ...]:
        quoted = dict.fromkeys((place, claim.quote) for claim in claims for place in places_to_check(state, claim))
        by_place = defaultdict[str, list[str]](list)
        for place, quote in islice(quoted, MOST_QUOTES):
            by_place[place].append(quote)
        checks = {one: QuoteCheck(evidence=one[0], quote=one[1], found=False, why=TOO_MANY) for one in quoted}
        for place, quotes in by_place.items():
            missed = await (await self._read(state, place)).misses(quotes)
            for quote in quotes:
                found, why = quote not in missed, missed.get(quote, "")
                checks[place, quote] = QuoteCheck(evidence=place, quote=quote, found=found, why=why)
        return tuple(checks.values())

    async def _read(self, state: RunState, place: str) -> QuoteSource:
        if place == PERSON:
            return QuoteSource(texts=state.messages)
        try:
            record = step_at(state, place)
            return await (self._step(state, record) if record else self._artifact(state, place))
        except ArtifactReplaced as error:
            return QuoteSource(why=str(error))
        except TryAgain as error:
            return QuoteSource(why=f"it cannot be read at the moment: {error}")

    async def _output(self, state: RunState, record: StepRecord) -> dict[str, JsonValue]:
        if state.last_output is not None and state.completed[-1] is record:
            return state.last_output
        async for result in self._results(state):
            # results of tasks are for their tool to judge
            if result.step == record.step and result.task in (None, AGAIN):
                return result_output(result)
        return {"summary": record.summary}

    async def _results(self, state: RunState) -> AsyncIterator[ToolResult]:
        for entry in reversed(await self.store.entries(state.run_id)):
            event = entry.decoded() if entry.kind == ToolReturned.__name__ else None
            if isinstance(event, ToolReturned) and event.result.status == "ok":
                yield event.result

    async def _artifact(self, state: RunState, path: str) -> QuoteSource:
        content = await self.artifacts.get(state.run_id, path)
        if content is None:
            return QuoteSource(why=f"{path} {GONE}")
        if is_text(content):
            return QuoteSource(texts=(content.decode(),))
        outputs = [result_output(result) async for result in self._results(state)]
        return QuoteSource(outputs=tuple(output for output in outputs if path in artifacts_in(output)), why=NO_TEXT)

    async def _step(self, state: RunState, record: StepRecord) -> QuoteSource:
        output, texts, missing = await self._output(state, record), list[str](), list[str]()
        for path in dict.fromkeys(path for path in artifacts_in(output) if path in state.artifacts):
            content = await self.artifacts.get(state.run_id, path)
            texts += [content.decode("utf-8", "replace")] if content is not None else []
            missing += [path] if content is None else []
        why = f"{', '.join(missing)} {GONE}" if missing else ""
        return QuoteSource(outputs=(output, *((record.sent,) if record.sent else ())), texts=tuple(texts), why=why)


def is_text(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text and any(map(str.isalnum, text))


def pieces(text: str) -> Iterator[str]:
    """Overlapping parts, cut between words where possible."""
    begin = 0
    while begin < len(text):
        end = _between_words(text, begin + PIECE)
        yield text[begin:end]
        begin = _between_words(text, end - OVERLAP) if end < len(text) else end


def _between_words(text: str, place: int) -> int:
    if place >= len(text):
        return len(text)
    found = _BETWEEN_WORDS.search(text, place, place + OVERLAP // 2)
    return found.start() if found else place
