"""The dead letters of both services on the bus: read, sent again, dropped.

Settling one is a message on `agentic.dlq.settled.<id>` with who, when and the letter's headers; it outlives a dropped
letter. A server that lost messages gives their sequences out again, so it also names when the letter was buried.

A letter is deleted after the record of that was stored, so the newest message of the stream is never deleted:
nats-server 2.15 would forget all message ids of the stream at its next crash.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from agent_service.bus.reading import headers_of
from agent_service.history.text import instant, rfc3339
from agent_service.views.inbox import (
    DeadLetter,
    NoSuchLetter,
    NotSentAgain,
    Settled,
    instant_in,
    obstacle,
    same_instant,
)
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NotThere, Published, StoredMessage
from groundwork.nats.settling import own_headers
from groundwork.service.errors import GiveUp
from schemas import subjects
from schemas.envelope import RETRIED_BY, RUN_ID
from schemas.fields import MAX_COUNT
from schemas.values import replace

RETRY_OF = "Agentic-Retry-Of"
_BURIED, _SETTLED, _BY = "Dead-Letter-Buried", "Dead-Letter-Settled", "Dead-Letter-By"
_SAID = "Dead-Letter-"
_NUMBER = re.compile(r"[0-9]{1,18}")

Deed = Literal["retried", "dropped"]

STREAM = subjects.STREAM_DEAD_LETTERS
MOST_LETTERS = 10_000
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""How a stream may be called that a letter says it came from: anybody can write one who may publish there."""


class NatsDeadLetters:
    """Methods raise what the link raises. `most`: only so many newest messages of a stream are looked through."""

    def __init__(self, link: NatsLink, *, most: int = MAX_COUNT) -> None:
        self._link = link
        self._most = most

    async def all(self) -> list[DeadLetter]:
        reading = headers_of(self._link, STREAM, subjects.ALL_DEAD_LETTERS, most=self._most)
        return fold([message async for message in reading])

    async def find(self, number: int) -> DeadLetter | None:
        if number > MAX_COUNT:
            return None
        message = await self._message(STREAM, seq=number)
        settled = await self._message(STREAM, subject=f"{subjects.SETTLED}.{number}")
        letters = fold(one for one in (message and letter_in(message) and message, settled) if one)
        return letters[0] if letters else None

    async def refused(self, letter: DeadLetter) -> StoredMessage | None:
        """The refused message, from its letter or else from its stream; None where it is gone."""
        stream, sequence = letter.place
        whole = await self._with_body(letter) if letter.is_whole else None
        if whole:
            return StoredMessage(whole.subject, whole.body, own_headers(whole.headers), sequence, whole.buried)
        message = await self._message(stream, seq=sequence) if sequence and _STREAM.fullmatch(stream) else None
        return message if message and letter.is_of(message.subject, message.at) else None

    async def _with_body(self, letter: DeadLetter) -> DeadLetter | None:
        if letter.body or (letter.held and not letter.size):
            return letter
        found = await self.find(letter.id)
        return found if found and found.held else None

    async def retry(self, number: int, by: str) -> tuple[DeadLetter, Published]:
        """Publish the refused message under an id of its own, stored once. Raises NoSuchLetter and NotSentAgain."""
        letter = await self.held(number)
        refused = None if (why := obstacle(letter)) else await self.refused(letter)
        if refused is None:
            gone = f"it does not hold the whole message, and stream {letter.place[0]} has it no more"
            raise _not_sent(letter, why or gone)
        try:
            return letter, await self._send_again(letter, refused, by)
        except GiveUp as error:
            raise _not_sent(letter, str(error)) from error

    async def drop(self, number: int, by: str) -> None:
        """Record who drops it, then delete it. Raises NoSuchLetter."""
        letter = await self.held(number)
        await self._record(letter, "dropped", by)
        with suppress(NotThere):
            await self._link.ask_jetstream(f"STREAM.MSG.DELETE.{STREAM}", {"seq": letter.id})

    async def held(self, number: int) -> DeadLetter:
        """Raises NoSuchLetter."""
        letter = await self.find(number)
        if letter is None:
            raise NoSuchLetter(f"there is no dead letter {number}: `agentic dlq ls` lists them")
        if letter.settled and not letter.held:
            done = letter.settled
            raise NoSuchLetter(f"dead letter {number} was {done.deed} by {done.by} at {instant(done.at)}")
        return letter

    async def _send_again(self, letter: DeadLetter, refused: StoredMessage, by: str) -> Published:
        headers = own_headers(refused.headers) | {RETRY_OF: str(letter.id), RETRIED_BY: by}
        sent = await self._link.publish(refused.subject, refused.body, msg_id=retry_id(letter), headers=headers)
        await self._record(letter, "retried", by)
        return sent

    async def _record(self, letter: DeadLetter, deed: Deed, by: str) -> None:
        subject, headers = record(letter, deed, by)
        await self._link.publish(subject, b"", msg_id=f"{deed}:{_name(letter)}", headers=headers)

    async def _message(self, stream: str, *, seq: int = 0, subject: str = "") -> StoredMessage | None:
        return await (self._link.stored(stream, seq) if seq else self._link.newest(stream, subject))


def retry_id(letter: DeadLetter) -> str:
    return f"retried:{_name(letter)}"


def _not_sent(letter: DeadLetter, why: str) -> NotSentAgain:
    return NotSentAgain(f"dead letter {letter.id} cannot be sent again: {why}")


def _name(letter: DeadLetter) -> str:
    return f"{STREAM}:{letter.id}:{letter.buried:%Y%m%dT%H%M%S%f}"


def fold(messages: Iterable[StoredMessage]) -> list[DeadLetter]:
    found: dict[int, DeadLetter] = {}
    for message in messages:
        letter = _settled(message) or letter_in(message)
        if letter and letter.settled and letter.id in found:
            _settle(found, letter)
        elif letter:
            found[letter.id] = letter
    return sorted(found.values(), key=lambda letter: letter.id)


def letter_in(message: StoredMessage) -> DeadLetter | None:
    prefix = subjects.ALL_DEAD_LETTERS.removesuffix(">")
    if not message.subject.startswith(prefix) or message.subject.startswith(f"{subjects.SETTLED}."):
        return None
    return DeadLetter(id=message.seq, buried=message.at, headers=message.headers, size=message.size, body=message.body)


def record(letter: DeadLetter, deed: Deed, by: str) -> tuple[str, dict[str, str]]:
    said = {name: value for name, value in letter.headers.items() if name.startswith(_SAID) or name == RUN_ID}
    return f"{subjects.SETTLED}.{letter.id}", said | {_BURIED: rfc3339(letter.buried), _SETTLED: deed, _BY: by}


def _settled(message: StoredMessage) -> DeadLetter | None:
    number = message.subject.removeprefix(f"{subjects.SETTLED}.")
    buried = instant_in(message.headers.get(_BURIED, ""))
    if not _NUMBER.fullmatch(number) or buried is None:
        return None
    settled = Settled(deed=message.headers.get(_SETTLED, "?"), by=message.headers.get(_BY, "?"), at=message.at)
    return DeadLetter(id=int(number), buried=buried, headers=message.headers, size=0, settled=settled, held=False)


def _settle(found: dict[int, DeadLetter], told: DeadLetter) -> None:
    if same_instant(found[told.id].buried, told.buried):
        found[told.id] = replace(found[told.id], settled=told.settled)
