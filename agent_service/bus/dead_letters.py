"""Dead letters of both services on the bus: list, send again, drop.

Settling a letter publishes a record on `agentic.dlq.settled.<id>` with caller, time and the letter's headers, which
outlives a dropped letter. It also has the letter's burial time, because a server that lost messages reuses sequences.

A letter is deleted after its record was stored, so that the stream's newest message is never deleted: nats-server 2.15
would forget all message ids of the stream at its next crash.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from nats.js.api import PubAck

from agent_service.history.text import instant, rfc3339
from agent_service.views import inbox
from groundwork.nats.dead_letters import copyable_headers
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NoSuchItem, StoredMessage
from groundwork.nats.shared_log import stored_by_now
from groundwork.service.errors import GiveUp
from schemas import subjects
from schemas.envelope import RETRIED_BY, RUN_ID
from schemas.values import replace

RETRY_OF = "Agentic-Retry-Of"
_BURIED, _SETTLED, _BY = "Dead-Letter-Buried", "Dead-Letter-Settled", "Dead-Letter-By"

Deed = Literal["retried", "dropped"]

STREAM = subjects.STREAM_DEAD_LETTERS
MOST_LETTERS = 10_000
"""Newest messages of the stream that are read."""
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Legal names of the stream that a letter names: any publisher can write a letter."""


class NatsDeadLetters:
    """Methods raise as the link does."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def all(self) -> list[inbox.DeadLetter]:
        reading = stored_by_now(self._link, STREAM, subjects.ALL_DEAD_LETTERS, most=MOST_LETTERS, headers_only=True)
        return fold([message async for message in reading])

    async def find(self, number: int) -> inbox.DeadLetter | None:
        message = await self._link.stored(STREAM, number)
        record = await self._link.newest(STREAM, f"{subjects.SETTLED}.{number}")
        letters = fold(one for one in (message and letter_in(message) and message, record) if one)
        return letters[0] if letters else None

    async def refused(self, letter: inbox.DeadLetter) -> StoredMessage | None:
        """The refused message, from its letter or its stream; None if both are gone."""
        stream, sequence = letter.place
        if letter.is_whole:
            whole = letter if letter.body or not letter.size else await self.find(letter.id)
            if whole and whole.held:
                return StoredMessage(whole.subject, whole.body, copyable_headers(whole.headers), sequence, whole.buried)
        message = await self._link.stored(stream, sequence) if sequence and _STREAM.fullmatch(stream) else None
        return message if message and letter.is_about(message.subject, message.at) else None

    async def retry(self, number: int, by: str) -> tuple[inbox.DeadLetter, PubAck]:
        """Publishes the refused message once, under a new id. Raises NoSuchLetter and NotSentAgain."""
        letter = await self.held(number)
        refused = None if (why := inbox.obstacle(letter)) else await self.refused(letter)
        if refused is None:
            gone = f"it does not hold the whole message, and stream {letter.place[0]} has it no more"
            raise _not_sent(letter, why or gone)
        headers = copyable_headers(refused.headers) | {RETRY_OF: str(letter.id), RETRIED_BY: by}
        try:
            sent = await self._link.publish(refused.subject, refused.body, msg_id=retry_id(letter), headers=headers)
            await self._record(letter, "retried", by)
        except GiveUp as error:
            raise _not_sent(letter, str(error)) from error
        return letter, sent

    async def drop(self, number: int, by: str) -> None:
        """Raises NoSuchLetter."""
        letter = await self.held(number)
        await self._record(letter, "dropped", by)
        with suppress(NoSuchItem):
            await self._link.ask_jetstream(f"STREAM.MSG.DELETE.{STREAM}", {"seq": letter.id})

    async def held(self, number: int) -> inbox.DeadLetter:
        """Raises NoSuchLetter."""
        letter = await self.find(number)
        if letter is None:
            raise inbox.NoSuchLetter(f"there is no dead letter {number}: `agentic dlq ls` lists them")
        if letter.settled and not letter.held:
            done = letter.settled
            raise inbox.NoSuchLetter(f"dead letter {number} was {done.deed} by {done.by} at {instant(done.at)}")
        return letter

    async def _record(self, letter: inbox.DeadLetter, deed: Deed, by: str) -> None:
        headers = {
            name: text for name, text in letter.headers.items() if name.startswith(inbox.PREFIX) or name == RUN_ID
        }
        headers |= {_BURIED: rfc3339(letter.buried), _SETTLED: deed, _BY: by}
        subject = f"{subjects.SETTLED}.{letter.id}"
        await self._link.publish(subject, b"", msg_id=f"{deed}:{_name(letter)}", headers=headers)


def retry_id(letter: inbox.DeadLetter) -> str:
    return f"retried:{_name(letter)}"


def _not_sent(letter: inbox.DeadLetter, why: str) -> inbox.NotSentAgain:
    return inbox.NotSentAgain(f"dead letter {letter.id} cannot be sent again: {why}")


def _name(letter: inbox.DeadLetter) -> str:
    return f"{STREAM}:{letter.id}:{letter.buried:%Y%m%dT%H%M%S%f}"


def fold(messages: Iterable[StoredMessage]) -> list[inbox.DeadLetter]:
    """Letters by id, each with its newest record."""
    found: dict[int, inbox.DeadLetter] = {}
    for message in messages:
        letter = _record_in(message) or letter_in(message)
        if letter and letter.settled and (known := found.get(letter.id)):
            if inbox.same_instant(known.buried, letter.buried):
                found[letter.id] = replace(known, settled=letter.settled)
        elif letter:
            found[letter.id] = letter
    return sorted(found.values(), key=lambda letter: letter.id)


def letter_in(message: StoredMessage) -> inbox.DeadLetter | None:
    prefix = subjects.ALL_DEAD_LETTERS.removesuffix(">")
    if not message.subject.startswith(prefix) or message.subject.startswith(f"{subjects.SETTLED}."):
        return None
    return inbox.DeadLetter(
        id=message.seq, buried=message.at, headers=message.headers, size=message.size, body=message.body
    )


def _record_in(message: StoredMessage) -> inbox.DeadLetter | None:
    number = message.subject.removeprefix(f"{subjects.SETTLED}.")
    buried = inbox.instant_in(message.headers.get(_BURIED, ""))
    if not inbox.NUMBER.fullmatch(number) or buried is None:
        return None
    settled = inbox.Settled(deed=message.headers.get(_SETTLED, "?"), by=message.headers.get(_BY, "?"), at=message.at)
    return inbox.DeadLetter(id=int(number), buried=buried, headers=message.headers, size=0, settled=settled, held=False)
