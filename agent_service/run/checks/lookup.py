"""Looks up the quotes with which a model proves its claims, for the journal; nothing is decided here.

A step's result and the artifacts it names are read in full, also what was cut from the prompt. Of an artifact that is
no text, the results that name it count.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

from pydantic import JsonValue

from agent_service.core.events import Seen, ToolReturned
from agent_service.core.framing import PERSON, STEP, sent_with, to_look_up
from agent_service.core.phases import Decision, Reflection
from agent_service.core.state import RunState
from agent_service.core.waiting import AGAIN
from agent_service.errors import Replaced
from agent_service.run.checks.citable import texts_of, was_asked
from agent_service.run.checks.citation import is_a_line, is_among, is_short, names_a_field, readings
from agent_service.run.ports import Artifacts
from agent_service.store.sqlite import RunStore
from groundwork.service.errors import TryAgain
from schemas.events import ToolResult
from schemas.values import dataclass

_APART = "\n\0\n"
"""Between texts that a quote must not reach across."""
PIECE, OVERLAP = 128 * 1024, 8 * 1024
"""Characters that are searched at once, to delay no other turn; and the overlap, longer than any quote."""
MOST_QUOTES = 40
"""Each place that a claim names counts as one."""
TOO_MANY = f"{MOST_QUOTES} quotes of a reply are looked up: claim what is left with the next"
GONE = "is not there any more"
ASKED = "it is of the address that was asked for: quote what was brought"
SHORT = "it is short: quote some words around it, too"
NO_TEXT = "it is no text: quote what the result that names it says"
_BETWEEN_WORDS = re.compile(r"\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`why` says what could not be read."""

    outputs: tuple[dict[str, JsonValue], ...] = ()
    texts: tuple[str, ...] = ()
    why: str = ""

    def form(self, quote: str) -> object:
        return names_a_field(quote), tuple(was_asked(output, quote) for output in self.outputs)

    def to(self, quote: str) -> str:
        return _APART.join((*(text for output in self.outputs for text in texts_of(output, quote)), *self.texts))


class Evidence:
    def __init__(self, store: RunStore, artifacts: Artifacts) -> None:
        self._store = store
        self._artifacts = artifacts

    async def seen(self, state: RunState, decision: Decision) -> tuple[Seen, ...]:
        claims = decision.met if isinstance(decision, Reflection) else ()
        quoted = tuple(dict.fromkeys((place, claim.quote) for claim in claims for place in to_look_up(state, claim)))
        looks = {
            (place, quote): Seen(evidence=place, quote=quote, found=False, why=TOO_MANY) for place, quote in quoted
        }
        for place in dict.fromkeys(place for place, _ in quoted[:MOST_QUOTES]):
            quotes = [quote for named, quote in quoted[:MOST_QUOTES] if named == place]
            place_read = await self._read(state, place)
            found = await _found(quotes, place_read)
            looks |= {(place, quote): _look(place, quote, quote in found, place_read) for quote in quotes}
        return tuple(looks.values())

    async def _read(self, state: RunState, place: str) -> Told:
        if place == PERSON:
            return Told(texts=state.messages)
        try:
            if not place.startswith(STEP):
                return await self._artifact(state, place)
            step = int(place.removeprefix(STEP))
            return await self._with_artifacts(state, await self._output(state, step), sent_with(state, place))
        except Replaced as error:
            return Told(why=str(error))
        except TryAgain as error:
            return Told(why=f"it cannot be read at the moment: {error}")

    async def _output(self, state: RunState, step: int) -> dict[str, JsonValue]:
        if state.last_output is not None and state.completed[-1].step == step:
            return state.last_output
        async for result in self._results(state):
            if result.step == step and result.task in (None, AGAIN):  # what a task brought is for its tool to judge
                return _brought(result)
        kept = next((record.summary for record in state.completed if record.step == step), "")
        return {"summary": kept}

    async def _results(self, state: RunState) -> AsyncIterator[ToolResult]:
        for entry in reversed(await self._store.entries(state.run_id)):
            event = entry.decoded() if entry.kind == ToolReturned.__name__ else None
            if isinstance(event, ToolReturned) and event.result.status == "ok":
                yield event.result

    async def _artifact(self, state: RunState, path: str) -> Told:
        content = await self._artifacts.get(state.run_id, path)
        if content is None:
            return Told(why=f"{path} {GONE}")
        if is_text(content):
            return Told(texts=(content.decode(),))
        outputs = [_brought(result) async for result in self._results(state)]
        return Told(outputs=tuple(output for output in outputs if path in _named_artifacts(output)), why=NO_TEXT)

    async def _with_artifacts(
        self, state: RunState, output: dict[str, JsonValue], sent: dict[str, JsonValue] | None
    ) -> Told:
        texts, missing = list[str](), list[str]()
        for path in (path for path in _named_artifacts(output) if path in state.artifacts):
            content = await self._artifacts.get(state.run_id, path)
            texts += [content.decode("utf-8", "replace")] if content is not None else []
            missing += [path] if content is None else []
        why = f"{', '.join(missing)} {GONE}" if missing else ""
        return Told(outputs=(output, sent) if sent else (output,), texts=tuple(texts), why=why)


def is_text(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text and any(map(str.isalnum, text))


def _brought(result: ToolResult) -> dict[str, JsonValue]:
    return result.result.model_dump(mode="json", exclude_none=True) if result.result else {}


def _look(place: str, quote: str, found: bool, told: Told) -> Seen:
    asked = any(was_asked(output, quote) for output in told.outputs)
    why = "" if found else told.why or (ASKED if asked else SHORT if is_short(quote) else "")
    return Seen(evidence=place, quote=quote, found=found, why=why)


async def _found(quotes: list[str], told: Told) -> set[str]:
    by_form = defaultdict[object, list[str]](list)
    for quote in quotes:
        by_form[told.form(quote)].append(quote)
    return {quote for alike in by_form.values() for quote in await _found_in(told.to(alike[0]), alike)}


async def _found_in(text: str, quotes: list[str]) -> set[str]:
    found = set[str]()
    for piece in pieces(text):
        texts = readings(piece)
        found |= {quote for quote in quotes if quote not in found and _stands(quote, piece, texts)}
        await asyncio.sleep(0)
    return found


def _stands(quote: str, piece: str, texts: tuple[str, ...]) -> bool:
    return is_a_line(quote, piece) if is_short(quote) else is_among(quote, texts)


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


def _named_artifacts(output: dict[str, JsonValue]) -> list[str]:
    listed = output.get("artifacts")
    about = listed if isinstance(listed, list) else []
    paths = (output.get("artifact_path"), *(each.get("path") for each in about if isinstance(each, dict)))
    return list(dict.fromkeys(path for path in paths if isinstance(path, str)))
