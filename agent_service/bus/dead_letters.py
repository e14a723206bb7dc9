"""The dead letters of both services on the bus: read, sent again, dropped.

A letter that is dropped is deleted only after the record of that was stored. So the newest message of the stream is
never deleted: nats-server 2.15 would forget all message ids of the stream at its next crash.
"""

import base64
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js.errors import APIError, NotFoundError

from agent_service.bus.letters import RETRY_OF, DeadLetter, Deed, Stored, fold, letter_in, record
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Published
from groundwork.nats.settling import own_headers
from groundwork.nats.topology import asked
from groundwork.service.errors import Misconfigured, TryAgain
from schemas import subjects
from schemas.fields import MAX_COUNT
from schemas.headers import RETRIED_BY

STREAM = subjects.STREAM_DEAD_LETTERS
NEXT_WITHIN_S = 5.0
NO_STREAM = 10059
"""JetStream's error code."""

T = TypeVar("T")


class NatsDeadLetters:
    """All methods raise Misconfigured, TryAgain and Unreachable, as the link does."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def all(self) -> list[DeadLetter]:
        """Every letter, oldest first, without bodies; dropped ones as their records tell them."""
        return fold([message async for message in self._headers()])

    async def find(self, number: int) -> DeadLetter | None:
        """One letter; None for a number that names none, or one that was deleted and is not on record."""
        if number > MAX_COUNT:
            return None
        message = await self._message(STREAM, seq=number)
        settled = await self._message(STREAM, subject=f"{subjects.SETTLED}.{number}")
        letters = fold(one for one in (message and letter_in(message) and message, settled) if one)
        return letters[0] if letters else None

    async def refused(self, letter: DeadLetter) -> Stored | None:
        """The message that was refused, from its letter or else from its stream; None where it is gone."""
        stream, sequence = letter.place
        if letter.is_whole:
            headers = own_headers(letter.headers)
            return Stored(
                subject=letter.subject,
                seq=sequence,
                at=letter.buried,
                headers=headers,
                size=letter.size,
                body=letter.body,
            )
        message = await self._message(stream, seq=sequence) if sequence else None
        return message if message and letter.is_of(message) else None

    async def send_again(self, letter: DeadLetter, refused: Stored, by: str) -> Published:
        """Publish the refused message again, under an id of its own, and record who did it. Raises Refused.

        Done twice, as after a crash in between, it is stored once.
        """
        headers = own_headers(refused.headers) | {RETRY_OF: str(letter.id), RETRIED_BY: by}
        sent = await self._link.publish(refused.subject, refused.body, msg_id=retry_id(letter), headers=headers)
        await self._record(letter, "retried", by)
        return sent

    async def drop(self, letter: DeadLetter, by: str) -> bool:
        """Record who drops it, then delete it. False where the stream lets nothing be deleted: it stays, recorded."""
        await self._record(letter, "dropped", by)
        deleting = self._link.jetstream.delete_msg(STREAM, letter.id)
        try:
            return await self._asked(STREAM, deleting)
        except NotFoundError:
            return True
        except Misconfigured as error:
            if isinstance(error.__cause__, APIError):
                return False
            raise

    async def _record(self, letter: DeadLetter, deed: Deed, by: str) -> None:
        subject, headers = record(letter, deed, by)
        await self._link.publish(subject, b"", msg_id=f"{deed}:{_name(letter)}", headers=headers)

    async def _headers(self) -> AsyncIterator[Stored]:
        """The messages that there are now, without bodies, in order."""
        reading = self._link.jetstream.subscribe(
            subjects.ALL_DEAD_LETTERS, stream=STREAM, ordered_consumer=True, headers_only=True
        )
        subscription = await self._asked(STREAM, reading)
        try:
            info = await subscription.consumer_info()
            left = (info.num_pending or 0) + (info.delivered.consumer_seq if info.delivered else 0)
            while left:
                message = await subscription.next_msg(timeout=NEXT_WITHIN_S)
                left = message.metadata.num_pending
                yield _delivered(message)
        except nats.errors.TimeoutError as error:
            raise TryAgain(f"stream {STREAM} stopped in the middle: ask again") from error
        finally:
            await subscription.unsubscribe()

    async def _message(self, stream: str, *, seq: int | None = None, subject: str | None = None) -> Stored | None:
        """The message at `seq`, or the newest of `subject`."""
        try:
            raw = await self._asked(stream, self._link.jetstream.get_msg(stream, seq, subject))
        except NotFoundError:
            return None
        body = raw.data or b""
        return Stored(
            subject=raw.subject or "",
            seq=raw.seq or 0,
            at=raw.time or datetime.now(UTC),
            headers=_headers_in(raw.hdrs),
            size=len(body),
            body=body,
        )

    async def _asked(self, stream: str, question: Awaitable[T]) -> T:
        try:
            return await asked(self._link, f"stream {stream}", question)
        except NotFoundError as error:
            if error.err_code == NO_STREAM:
                raise Misconfigured(f"there is no stream {stream}: run `agentic setup`") from error
            raise


def retry_id(letter: DeadLetter) -> str:
    """The Nats-Msg-Id under which the refused message is sent again."""
    return f"retried:{_name(letter)}"


def _name(letter: DeadLetter) -> str:
    return f"{STREAM}:{letter.id}:{letter.buried:%Y%m%dT%H%M%S%f}"


def _delivered(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(
        subject=message.subject,
        seq=message.metadata.sequence.stream,
        at=message.metadata.timestamp,
        headers=headers,
        size=int(headers.get("Nats-Msg-Size", 0)),
    )


def _headers_in(encoded: str | bytes | None) -> dict[str, str]:
    """The client's own reading of them loses what is not ASCII."""
    lines = base64.b64decode(encoded or b"").decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
