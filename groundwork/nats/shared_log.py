"""A log that several processes share: a stream of facts, each behind the newest of its subject.

Of two concurrent writers on a subject one wins, and the other gets Moved. A fact carries an id, by which its writer
knows it again where the acknowledgement was lost. Reads ask the leader. A fact too large for one message goes ahead of
itself in parts, and counts from its last message on, which names them.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from groundwork.nats.following import FROM_THE_FIRST, NEWEST_OF_EACH, Batch, Following
from groundwork.nats.link import BUDGET_SECONDS, NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, Refused, StoredMessage
from groundwork.service.errors import Misconfigured, patiently
from groundwork.service.machine import token_hex

FACT = "Agentic-Fact"
PARTS = "Agentic-Parts"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
AMONG = f"{EXPECTED}-Subject"
NO_HEADERS: Mapping[str, str] = {}
SPARE_BYTES = 8192
ALL = 2**31
PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5

_ALREADY_IN_PROCESS = 10164


class Moved(Exception):
    """Another fact is the newest of the subject: load and decide again."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Which stream it is, by when it was made; its newest sequence; its size in bytes; and when a message was stored,
    if it is there."""

    created: str
    last_seq: int
    size: int
    stored_at: datetime | None


class SharedLog:
    """The facts of `stream`, whose subjects all begin with `root`. `headers_only`: those who follow hear no bodies; and
    who begins hears of each subject the newest fact alone."""

    def __init__(self, link: NatsLink, stream: str, *, root: str, headers_only: bool = False) -> None:
        self._link = link
        self._stream = stream
        self._root = root
        self._headers_only = headers_only

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = NO_HEADERS, among: str = ""
    ) -> int:
        """The new sequence. `after`: the newest of its subject, or of the pattern `among`; 0 for none, None for any.
        Raises Moved, NoRoom, TryAgain where it may still be stored, Misconfigured."""
        name = token_hex(8)
        told = {**headers, FACT: name, "Nats-Msg-Id": name}
        if after is not None:
            told[EXPECTED] = str(after)
        if among:
            told[AMONG] = among
        room = self._link.max_payload - SPARE_BYTES
        if len(body) <= room:
            return await self._put(subject, body, told)
        parts = [body[at : at + room] for at in range(0, len(body), room)]
        return await self._put_with_parts(subject, parts, told)

    async def newest(self, subject: str) -> StoredMessage | None:
        stored = await self._link.newest(self._stream, subject)
        return await self.whole(stored) if stored else None

    async def read(self, subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        """The first `most` facts of a subject, or of a pattern, behind a sequence, as one of the stream's servers has
        them: it may be behind. Raises TryAgain."""
        stored = await self._link.read(self._stream, subject, after, most)
        return [await self.whole(one) for one in stored]

    async def end(self) -> int:
        """The sequence of the newest message that is there; 0 for none. Raises TryAgain, Misconfigured."""
        stored = await self._link.newest(self._stream, f"{self._root}.>")
        return stored.seq if stored else 0

    async def extent(self, seq: int = 0) -> Extent:
        """With `stored_at` of the message at `seq`. Raises TryAgain, or Misconfigured where there is no such stream."""
        info = await self._api("INFO", {})
        stored = await self._link.stored(self._stream, seq) if seq else None
        state = info["state"]
        return Extent(info["created"], state["last_seq"], state["bytes"], stored.at if stored else None)

    async def purge(self, subject: str) -> None:
        """Removes the facts of a subject. Raises TryAgain."""
        for of_it in (subject, f"{self._parts_of(subject)}.>"):
            await self._api("PURGE", {"filter": of_it})

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        """In order and without a gap, for ever. Raises Misconfigured where the stream is gone, or is another one."""
        made = await self._made_at()
        start = NEWEST_OF_EACH if self._headers_only else FROM_THE_FIRST
        following = Following(self._link, self._stream, headers_only=self._headers_only, start=start)
        async with aclosing(following.batches(after)) as batches:
            async for batch in batches:
                if batch.again and await self._made_at() != made:
                    raise Misconfigured(f"the stream {self._stream} is another one than before: start again")
                facts = [fact for fact in batch.messages if self._counts(fact)]
                if not self._headers_only:
                    facts = [await patiently(partial(self.whole, fact), LONGEST_PAUSE_S) for fact in facts]
                yield Batch(facts, batch.upto, at=batch.at)

    async def whole(self, fact: StoredMessage) -> StoredMessage:
        count = fact.headers.get(PARTS, "")
        if not count.isdecimal():
            return fact
        under = f"{self._parts_of(fact.subject)}.{fact.headers.get(FACT)}"
        found = [await self._link.newest(self._stream, f"{under}.{number}") for number in range(int(count))]
        return replace(fact, body=b"" if None in found else b"".join(part.body for part in found if part))

    async def _put_with_parts(self, subject: str, parts: Sequence[bytes], headers: Mapping[str, str]) -> int:
        name = headers[FACT]
        under = f"{self._parts_of(subject)}.{name}"
        for number, part in enumerate(parts):
            await self._keep(f"{under}.{number}", part, {"Nats-Msg-Id": f"{name}.{number}"})
        # The parts of one that lost are left: it may have been stored, and be the newest no more.
        return await self._put(subject, b"", {**headers, PARTS: str(len(parts))})

    async def _put(self, subject: str, body: bytes, headers: Mapping[str, str]) -> int:
        deadline = asyncio.get_running_loop().time() + BUDGET_SECONDS
        while True:
            try:
                return await self._keep(subject, body, headers)
            except Refused as error:
                if error.code == WRONG_SEQUENCE:
                    return await self._known_again(headers.get(AMONG, subject), headers[FACT])
                if error.code != _ALREADY_IN_PROCESS or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _keep(self, subject: str, body: bytes, headers: Mapping[str, str]) -> int:
        return (await self._link.keep(subject, body, headers)).seq

    async def _known_again(self, subject: str, name: str) -> int:
        """The sequence of the fact of this name, if it is the newest after all. Raises Moved, TryAgain."""
        newest = await self._link.newest(self._stream, subject)
        if newest and newest.headers.get(FACT) == name:
            return newest.seq
        raise Moved(f"{subject} has another newest fact")

    async def _made_at(self) -> str:
        return (await patiently(self.extent, LONGEST_PAUSE_S)).created

    def _counts(self, fact: StoredMessage) -> bool:
        return not fact.subject.startswith(f"{self._root}.part.")

    def _parts_of(self, subject: str) -> str:
        return f"{self._root}.part.{hashlib.sha256(subject.encode()).hexdigest()[:32]}"

    async def _api(self, verb: str, asked: Mapping[str, object]) -> dict[str, Any]:
        return await self._link.ask_jetstream(f"STREAM.{verb}.{self._stream}", asked)
