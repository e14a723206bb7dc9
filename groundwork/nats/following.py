"""All messages of a stream from one sequence on, in order and without a gap, for ever: an ordered push consumer.

Where a message or heartbeats are missing, another consumer goes on from the last message. nats-py's own takes subjects
of the form `$JS.ACK.DOMAIN.ACCOUNT…` (NATS ADR-15) for gaps, and begins anew for ever (2.16).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import nats.errors
from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused, StoredMessage
from groundwork.nats.settling import is_delivery, read_delivery
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic, token_hex

HEARTBEAT_S = 4.0
MISSED_HEARTBEATS = 2
MADE_WITHIN_S = 1.5
"""Where it takes longer, the server has put it on a node that is away: another one may land elsewhere."""
FORGOTTEN_AFTER_S = 30.0
PAUSE_S = 0.2
MOST_AT_ONCE = 512
_STALLED = "Nats-Consumer-Stalled"

FROM_THE_FIRST: Mapping[str, object] = {"deliver_policy": "all"}
NEWEST_OF_EACH: Mapping[str, object] = {"deliver_policy": "last_per_subject"}
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in order, up to a sequence and its instant `at`. `again`: a new consumer brings it."""

    messages: Sequence[StoredMessage]
    upto: int
    again: bool = False
    at: datetime = _LONG_AGO


@dataclass(frozen=True, slots=True)
class Following:
    """`start`: where its consumer begins that is behind nothing."""

    _link: NatsLink
    _stream: str
    subject: str = ">"
    headers_only: bool = False
    start: Mapping[str, object] = field(default_factory=lambda: FROM_THE_FIRST)

    async def batches(self, after: int) -> AsyncGenerator[Batch, None]:
        """What is behind sequence `after`. Raises Misconfigured where there is no such stream."""
        while True:
            again = True
            async with contextlib.aclosing(self._one_consumer(after)) as pushed:
                async for messages in pushed:
                    after = messages[-1].seq
                    yield Batch(messages, after, again, messages[-1].at)
                    again = False
            await asyncio.sleep(PAUSE_S)

    async def _one_consumer(self, after: int) -> AsyncGenerator[Sequence[StoredMessage], None]:
        arrived: asyncio.Queue[Msg] = asyncio.Queue()
        inbox, name = self._link.new_inbox(), f"copy-{token_hex(6)}"
        try:
            subscription = await self._link.subscribe(inbox, arrived.put)
        except nats.errors.Error:  # the connection is just being closed or got back
            return
        try:
            if await self._made(name, inbox, after):
                async with contextlib.aclosing(self._pushed(arrived)) as pushed:
                    async for messages in pushed:
                        yield messages
        finally:
            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()
            await self._link.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}", b"")

    async def _pushed(self, arrived: asyncio.Queue[Msg]) -> AsyncGenerator[Sequence[StoredMessage], None]:
        expected = 1
        while True:
            try:
                async with asyncio.timeout(MISSED_HEARTBEATS * HEARTBEAT_S):
                    waiting = [await arrived.get()]
            except TimeoutError:
                return
            while len(waiting) < MOST_AT_ONCE and not arrived.empty():
                waiting.append(arrived.get_nowait())
            found, whole = _in_order(waiting, expected)
            expected += len(found)
            if found:
                yield found
            for message in waiting:
                await self._answer(message)
            if not whole:
                return

    async def _answer(self, message: Msg) -> None:
        """What the server waits for before it pushes on: asked for now that all before it is dealt with."""
        if not is_delivery(message):
            asked = message.reply or (message.headers or {}).get(_STALLED)
            if asked:
                await self._link.send(asked, b"")

    async def _made(self, name: str, inbox: str, after: int) -> bool:
        behind = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        config = {
            "name": name,
            "deliver_subject": inbox,
            **(behind if after else self.start),
            "filter_subjects": [self.subject],
            "headers_only": self.headers_only,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            "inactive_threshold": int(FORGOTTEN_AFTER_S * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        asked = {"stream_name": self._stream, "config": config, "action": "create"}
        try:
            question = f"CONSUMER.CREATE.{self._stream}.{name}"
            await self._link.ask_jetstream(question, asked, timeout_s=MADE_WITHIN_S)
        except (TryAgain, Refused) as error:
            log.debug("%s cannot be followed yet: %s", self._stream, error)
            return False
        return True


def _in_order(waiting: Sequence[Msg], expected: int) -> tuple[list[StoredMessage], bool]:
    """The messages up to the first that is missing, and whether none is."""
    found: list[StoredMessage] = []
    for message in filter(is_delivery, waiting):
        delivery = read_delivery(message)
        if delivery.consumer_seq != expected + len(found):
            return found, False
        found.append(delivery)
    return found, True


LOOK_AGAIN_S = 0.5
"""How often the streams are asked after it was away, until they answer and are informed."""


@dataclass(frozen=True, slots=True)
class Sight:
    reconnects: int
    created: datetime
    first_seq: int
    last_seq: int

    def may_have_forgotten(self, before: "Sight") -> bool:
        """Whether anything of what was there at `before` may be missing: more than what has grown old since."""
        if (self.reconnects, self.created) != (before.reconnects, before.created) or self.last_seq < before.last_seq:
            return True
        gone_since = self.first_seq > before.last_seq + 1
        had_any = 0 < before.first_seq <= before.last_seq
        return gone_since or (had_any and self.first_seq > before.last_seq)


async def keep_informed(
    link: NatsLink, streams: Collection[str], inform: Callable[[], Awaitable[None]], *, every_s: float
) -> None:
    """Call `inform` now, and whenever one of the streams may have forgotten, until it raises no TryAgain. For ever."""
    before: dict[str, Sight] = {}
    told = False
    while True:
        now = {name: sight for name in streams if (sight := await _look(link, name))}
        forgotten = any(sight.may_have_forgotten(before[name]) for name, sight in now.items() if name in before)
        if now and (forgotten or not told):
            told = await _informed(inform)
        before |= now
        await _while_connected(link, every_s if told and len(now) == len(streams) else LOOK_AGAIN_S)


async def _while_connected(link: NatsLink, most_s: float) -> None:
    reconnects, until = link.reconnects, monotonic() + most_s
    while link.reconnects == reconnects and monotonic() < until:  # noqa: ASYNC110 - the client only counts
        await asyncio.sleep(LOOK_AGAIN_S)


async def _informed(inform: Callable[[], Awaitable[None]]) -> bool:
    try:
        await inform()
    except TryAgain as error:
        log.warning("the bus is not informed yet", extra={"why": str(error)})
        return False
    return True


async def _look(link: NatsLink, stream: str) -> Sight | None:
    if not link.connected:
        return None
    reconnects = link.reconnects
    try:
        info = await link.ask_jetstream(f"STREAM.INFO.{stream}")
        created, state = datetime.fromisoformat(info["created"]), info["state"]
        return Sight(reconnects, created, state["first_seq"], state["last_seq"])
    except (Failure, ValueError, KeyError):  # there is no such stream now, or no answer
        return None
