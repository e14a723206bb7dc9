"""A stream as a log: followed in order and without a gap, and appended to by several processes.

A follower is an ordered push consumer. Where a message or heartbeats are missing, another consumer goes on behind the
last message. nats-py's own cannot read subjects of the form `$JS.ACK.DOMAIN.ACCOUNT…` (NATS ADR-15), and a message that
its buffer has no room for is lost without a gap (2.16).

A shared log has facts, each appended behind the newest of its subject. Of two concurrent writers on a subject one wins,
and the other gets AppendConflict. A fact carries an id by which its writer finds it if the acknowledgement was lost.
Reads ask the leader. A fact too large for one message is preceded by its parts, and counts from its last message on,
which names them.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import nats.errors
from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import (
    EXPECTED,
    PENDING,
    WRONG_SEQUENCE,
    BusRefused,
    StoredMessage,
    read_delivery,
    read_direct,
)
from groundwork.service.errors import Misconfigured, TryAgain, in_time, patiently
from groundwork.service.machine import token_hex

HEARTBEAT_S = 4.0
MISSED_HEARTBEATS = 2
CREATED_WITHIN_S = 1.5
"""If it takes longer, the server placed the consumer on a node that is away: another one may land elsewhere."""
FORGOTTEN_AFTER_S = 30.0
PAUSE_S = 0.2
NEXT_WITHIN_S = 5.0
MOST_AT_ONCE = 512
_STALLED, _LAST = "Nats-Consumer-Stalled", "Nats-Last-Consumer"
_ORDERED: Mapping[str, object] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": int(HEARTBEAT_S * 1e9),
    "inactive_threshold": int(FORGOTTEN_AFTER_S * 1e9),
    "mem_storage": True,
    "num_replicas": 1,
}

FROM_THE_FIRST: Mapping[str, object] = {"deliver_policy": "all"}
NEWEST_OF_EACH: Mapping[str, object] = {"deliver_policy": "last_per_subject"}
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

FACT = "Agentic-Fact"
PARTS = "Agentic-Parts"
AMONG = f"{EXPECTED}-Subject"
NO_HEADERS: Mapping[str, str] = {}
SPARE_BYTES = 8192
ALL = 2**31
READ_AT_ONCE = 256
SERVERS_ANSWER_IN_S = (0.25, 0.25, 0.25, 1.0)
LONGEST_PAUSE_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in order. `last_seq` and `at` are of the last one. `resumed`: a new consumer begins behind `last_seq`,
    and there are no messages yet."""

    messages: Sequence[StoredMessage]
    last_seq: int
    resumed: bool = False
    at: datetime = _LONG_AGO


async def follow_stream(
    link: NatsLink, stream: str, after: int, *, subject: str = ">", headers_only: bool, start: Mapping[str, object]
) -> AsyncGenerator[Batch, None]:
    """Yields what is behind sequence `after`, forever; for 0, what the deliver policy `start` begins with. Raises
    Misconfigured where there is no such stream."""
    while True:
        arrived, subscription = asyncio.Queue[Msg](), None
        inbox, name = link.client.new_inbox(), f"copy-{token_hex(6)}"
        behind = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else start
        wanted = {**behind, "filter_subjects": [subject], "headers_only": headers_only}
        asked = {"stream_name": stream, "config": {"name": name, "deliver_subject": inbox, **_ORDERED, **wanted}}
        expected, complete = 1, True
        try:
            subscription = await link.subscribe(inbox, arrived.put)
            created = f"CONSUMER.CREATE.{stream}.{name}"
            await link.ask_jetstream(created, {**asked, "action": "create"}, timeout_s=CREATED_WITHIN_S)
            yield Batch((), after, resumed=True)
            while complete and (waiting := await _waiting(arrived)):
                found, complete, asks = _in_order(waiting, expected)
                expected += len(found)
                if found:
                    after = found[-1].seq
                    yield Batch(found, after, at=found[-1].at)
                for one in asks:  # flow control is answered once everything before it is processed
                    await link.send(one, b"")
        except (TryAgain, BusRefused, ValueError, nats.errors.Error) as error:
            # The last two: the connection is closing, or no server sent this.
            log.debug("%s cannot be followed yet: %s", stream, error)
        finally:
            if subscription:
                with contextlib.suppress(nats.errors.Error):
                    await subscription.unsubscribe()
                await link.send(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")
        await asyncio.sleep(PAUSE_S)


async def _waiting(arrived: asyncio.Queue[Msg]) -> list[Msg]:
    """Empty if heartbeats are missing."""
    try:
        async with asyncio.timeout(MISSED_HEARTBEATS * HEARTBEAT_S):
            waiting = [await arrived.get()]
    except TimeoutError:
        return []
    while len(waiting) < MOST_AT_ONCE and not arrived.empty():
        waiting.append(arrived.get_nowait())
    return waiting


def _in_order(waiting: Sequence[Msg], expected: int) -> tuple[list[StoredMessage], bool, list[str]]:
    """Messages before the first gap, True if there is no gap, and the subjects of flow control that ask for an answer.
    A heartbeat tells of a message that no other follows."""
    found, complete, asks = list[StoredMessage](), True, list[str]()
    for message in waiting:
        due, delivery = expected + len(found), read_delivery(message)
        if delivery is None:
            headers = message.headers or {}
            complete = complete and int(headers.get(_LAST, 0)) < due
            asks += filter(None, [message.reply or headers.get(_STALLED)])
        elif complete and delivery.consumer_seq == due:
            found.append(delivery)
        else:
            complete = False
    return found, complete, asks


async def stored_by_now(
    link: NatsLink,
    stream: str,
    subject: str,
    *,
    most: int = ALL,
    since: datetime | None = None,
    headers_only: bool = False,
) -> AsyncGenerator[StoredMessage, None]:
    """Messages of a subject or pattern that are stored now, from `since` on, of the `most` newest of the stream. Raises
    TryAgain and Misconfigured."""
    newest = await link.newest(stream, subject)
    if newest is None or (since and newest.at < since):
        return
    after = max(0, newest.seq - most)
    start = {"deliver_policy": "by_start_time", "opt_start_time": since.isoformat()} if since else FROM_THE_FIRST
    following = follow_stream(link, stream, after, subject=subject, headers_only=headers_only, start=start)
    async with contextlib.aclosing(following) as batches:
        while after < newest.seq:
            async with in_time(f"stream {stream}", NEXT_WITHIN_S):
                batch = await anext(batches)
            after = batch.last_seq
            for one in batch.messages:
                yield one


class AppendConflict(Exception):
    """Another fact is the newest of the subject: load and decide again."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Creation time, newest sequence and size in bytes of a stream."""

    created: str
    last_seq: int
    size: int


class SharedLog:
    """Facts of `stream`, whose subjects begin with `root`. `headers_only`: followers get no bodies, and at their start
    only the newest fact of each subject."""

    def __init__(self, link: NatsLink, stream: str, *, root: str, headers_only: bool = False) -> None:
        self._link = link
        self.stream = stream
        self._root = root
        self._headers_only = headers_only
        self._names = map(f"{token_hex(8)}-{{}}".format, itertools.count())  # no entropy per append: it is a syscall

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = NO_HEADERS, among: str = ""
    ) -> int:
        """Returns the new sequence. `after`: the newest of its subject, or of the pattern `among`; 0 for none, None for
        any. Raises AppendConflict, NoRoom, TryAgain where it may still be stored, and Misconfigured, also for a
        sealed stream."""
        name = next(self._names)
        named = {**headers, FACT: name, "Nats-Msg-Id": name}
        if after is not None:
            named[EXPECTED] = str(after)
        if among:
            named[AMONG] = among
        try:
            if len(body) > self._link.max_payload - SPARE_BYTES:
                body, named[PARTS] = b"", str(await self._store_parts(subject, name, body))
            return (await self._link.store(subject, body, named)).seq
        except BusRefused as error:
            if error.code != WRONG_SEQUENCE:
                raise Misconfigured(f"the stream {self.stream} refuses what belongs there: {error}") from error
        newest = await self._link.newest(self.stream, among or subject)
        if newest and newest.headers.get(FACT) == name:  # an earlier attempt was stored without an answer
            return newest.seq
        raise AppendConflict(f"{subject} has another newest fact")

    async def newest(self, subject: str) -> StoredMessage | None:
        stored = await self._link.newest(self.stream, subject)
        return await self.whole(stored) if stored else None

    async def read(self, subject: str, after: int, most: int = ALL) -> list[StoredMessage]:
        """The first `most` facts of a subject or pattern behind a sequence, from any replica, which may lag. Raises
        TryAgain."""
        question = f"$JS.API.DIRECT.GET.{self.stream}"
        found, end = list[StoredMessage](), dict[str, str]()

        def more_follow(answer: Msg) -> bool:
            message = read_direct(answer)
            if message is None:
                end.update(answer.headers or {})
            elif message.seq > (found[-1].seq if found else after):  # else it was read in an earlier attempt
                found.append(message)
            return message is not None

        while len(found) < most:
            seq, batch = (found[-1].seq if found else after) + 1, min(most - len(found), READ_AT_ONCE)
            wanted = json.dumps({"seq": seq, "next_by_subj": subject, "batch": batch}).encode()
            end.clear()
            await self._link.request(question, wanted, timeouts_s=SERVERS_ANSWER_IN_S, more_follow=more_follow)
            if end.get("Status") not in ("204", "404"):
                raise TryAgain(f"{question}: {end.get('Status')} {end.get('Description', '')}")
            if not int(end.get(PENDING, 0)):
                break
        return [await self.whole(one) for one in found]

    async def end(self) -> int:
        """Sequence of the newest message; 0 if there is none. Raises TryAgain, Misconfigured."""
        stored = await self._link.newest(self.stream, f"{self._root}.>")
        return stored.seq if stored else 0

    async def extent(self) -> Extent:
        """Raises TryAgain, or Misconfigured where there is no such stream."""
        info = await self._link.ask_jetstream(f"STREAM.INFO.{self.stream}")
        return Extent(info["created"], info["state"]["last_seq"], info["state"]["bytes"])

    async def stored_at(self, seq: int) -> datetime | None:
        """When the message at `seq` was stored; None if it is gone. Raises TryAgain."""
        stored = await self._link.stored(self.stream, seq)
        return stored.at if stored else None

    async def purge(self, subject: str, *, up_to: int | None = None) -> None:
        """Removes the facts of a subject with their parts; with `up_to`, none after it. Raises TryAgain."""
        before = {} if up_to is None else {"seq": up_to + 1}
        for each in (subject, f"{self._parts_of(subject)}.>"):
            await self._link.ask_jetstream(f"STREAM.PURGE.{self.stream}", {"filter": each, **before})

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        """Yields facts in order without a gap, forever. Raises Misconfigured where the stream is gone."""
        start = NEWEST_OF_EACH if self._headers_only else FROM_THE_FIRST
        following = follow_stream(self._link, self.stream, after, headers_only=self._headers_only, start=start)
        async with contextlib.aclosing(following) as batches:
            async for batch in batches:
                facts = [fact for fact in batch.messages if not fact.subject.startswith(f"{self._root}.part.")]
                if not self._headers_only:
                    facts = [await patiently(partial(self.whole, fact), LONGEST_PAUSE_S) for fact in facts]
                yield replace(batch, messages=facts)

    async def whole(self, fact: StoredMessage) -> StoredMessage:
        """The fact with the body that its parts make up; an empty one if a part is gone."""
        count = fact.headers.get(PARTS, "")
        if not count.isdecimal():
            return fact
        under = f"{self._parts_of(fact.subject)}.{fact.headers.get(FACT)}"
        found = [await self._link.newest(self.stream, f"{under}.{number}") for number in range(int(count))]
        return replace(fact, body=b"" if None in found else b"".join(part.body for part in found if part))

    async def _store_parts(self, subject: str, name: str, body: bytes) -> int:
        """Returns their number. Those of a writer that lost stay: its fact may have been stored, and not be the newest
        any more."""
        room = self._link.max_payload - SPARE_BYTES
        parts = [body[at : at + room] for at in range(0, len(body), room)]
        for number, part in enumerate(parts):
            part_id = {"Nats-Msg-Id": f"{name}.{number}"}
            await self._link.store(f"{self._parts_of(subject)}.{name}.{number}", part, part_id)
        return len(parts)

    def _parts_of(self, subject: str) -> str:
        return f"{self._root}.part.{hashlib.sha256(subject.encode()).hexdigest()[:32]}"
