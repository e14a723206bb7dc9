"""Following a stream: its messages in order and without a gap, and a watch for streams that lost messages.

A follower is an ordered push consumer. Where a message or heartbeats are missing, another consumer goes on behind the
last message. nats-py's own takes subjects of the form `$JS.ACK.DOMAIN.ACCOUNT…` (NATS ADR-15) for gaps, and starts over
forever (2.16).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import nats.errors
from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import BusRefused, StoredMessage
from groundwork.nats.settling import is_delivery, read_delivery
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import token_hex

HEARTBEAT_S = 4.0
MISSED_HEARTBEATS = 2
CREATED_WITHIN_S = 1.5
"""If it takes longer, the server placed the consumer on a node that is away: another one may land elsewhere."""
FORGOTTEN_AFTER_S = 30.0
PAUSE_S = 0.2
MOST_AT_ONCE = 512
LOOK_AGAIN_S = 0.5
"""Pause between attempts to read the streams and to recover, until both succeed."""
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

Recover = Callable[[bool], Awaitable[None]]
"""Recovers from a start, or with True from a possible loss of messages. Raises TryAgain."""

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
    link: NatsLink,
    stream: str,
    after: int,
    *,
    subject: str = ">",
    headers_only: bool = False,
    start: Mapping[str, object] = FROM_THE_FIRST,
) -> AsyncGenerator[Batch, None]:
    """Yields what is behind sequence `after`, forever; for 0, what the deliver policy `start` begins with. Raises
    Misconfigured where there is no such stream."""
    while True:
        behind = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else start
        wanted = {**behind, "filter_subjects": [subject], "headers_only": headers_only}
        async with contextlib.aclosing(_one_consumer(link, stream, wanted)) as pushed:
            async for messages in pushed:
                if messages:
                    after = messages[-1].seq
                    yield Batch(messages, after, at=messages[-1].at)
                else:
                    yield Batch((), after, resumed=True)
        await asyncio.sleep(PAUSE_S)


async def _one_consumer(
    link: NatsLink, stream: str, wanted: Mapping[str, object]
) -> AsyncGenerator[Sequence[StoredMessage], None]:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    inbox, name = link.client.new_inbox(), f"copy-{token_hex(6)}"
    try:
        subscription = await link.subscribe(inbox, arrived.put)
    except nats.errors.Error:  # the connection is closing or reconnecting
        return
    expected = 1
    config = {"name": name, "deliver_subject": inbox, **_ORDERED, **wanted}
    asked = {"stream_name": stream, "config": config, "action": "create"}
    try:
        await link.ask_jetstream(f"CONSUMER.CREATE.{stream}.{name}", asked, timeout_s=CREATED_WITHIN_S)
        complete = True
        yield ()
        while complete and (waiting := await _waiting(arrived)):
            found, complete = _in_order(waiting, expected)
            expected += len(found)
            if found:
                yield found
            for message in waiting:  # flow control is answered once everything before it is processed
                asks = not is_delivery(message) and (message.reply or (message.headers or {}).get(_STALLED))
                if asks:
                    await link.send(asks, b"")
    except (TryAgain, BusRefused, ValueError, nats.errors.Error) as error:  # the last two for what no server sent
        log.debug("%s cannot be followed yet: %s", stream, error)
    finally:
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()
        await link.send(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")


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


def _in_order(waiting: Sequence[Msg], expected: int) -> tuple[list[StoredMessage], bool]:
    """Messages before the first gap, and True if there is no gap. A heartbeat tells of a message that no other
    follows."""
    found: list[StoredMessage] = []
    for message in waiting:
        due = expected + len(found)
        if not is_delivery(message):
            if int((message.headers or {}).get(_LAST, 0)) >= due:
                return found, False
        elif (delivery := read_delivery(message)).consumer_seq == due:
            found.append(delivery)
        else:
            return found, False
    return found, True


@dataclass(frozen=True, slots=True)
class StreamSight:
    """State of a stream as read after `reconnects`."""

    reconnects: int
    created: datetime
    first_seq: int
    last_seq: int

    def may_have_lost(self, before: "StreamSight") -> bool:
        """True if messages that were there at `before` may be missing, other than by their age."""
        if (self.reconnects, self.created) != (before.reconnects, before.created) or self.last_seq < before.last_seq:
            return True
        gone_since = self.first_seq > before.last_seq + 1
        had_any = 0 < before.first_seq <= before.last_seq
        return gone_since or (had_any and self.first_seq > before.last_seq)


async def watch_streams(
    link: NatsLink, streams: Collection[str], recover: Recover, *, every_s: float, reconnects: int = 0
) -> None:
    """Calls `recover` now, and whenever one of the streams may have lost messages since the link had `reconnects`,
    until it raises no TryAgain. Runs forever."""
    seen: dict[str, StreamSight] = {}
    lost, recovered = False, False
    while True:
        now = {name: sight for name in streams if (sight := await _look(link, name))}
        for name, sight in now.items():
            lost |= sight.may_have_lost(seen.get(name, replace(sight, reconnects=reconnects)))
        seen |= now
        if now and (lost or not recovered):
            try:
                await recover(lost)
                lost, recovered = False, True
            except TryAgain as error:
                recovered = False
                log.warning("the bus is not informed yet", extra={"why": str(error)})
        await link.until_back(within_s=every_s if recovered and len(now) == len(streams) else LOOK_AGAIN_S)


async def _look(link: NatsLink, stream: str) -> StreamSight | None:
    if not link.connected:
        return None
    reconnects = link.reconnects
    try:
        info = await link.ask_jetstream(f"STREAM.INFO.{stream}")
        created, state = datetime.fromisoformat(info["created"]), info["state"]
        return StreamSight(reconnects, created, state["first_seq"], state["last_seq"])
    except (Failure, ValueError, KeyError):  # there is no such stream now, or no answer
        return None
