"""The connection to NATS: publish with an acknowledgement, send without one, request, read streams, close.

Every publish is retried under the same Nats-Msg-Id; where the stream has that id already, its message is compared.
Nothing is buffered while disconnected.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import PubAck

from groundwork.nats.client import HARMLESS_DENIAL, LARGEST_MESSAGE, BusClient, Unanswered
from groundwork.nats.publishing import (
    MOST_IDS,
    BusRefused,
    NoSuchItem,
    StoredMessage,
    read_ack,
    read_answer,
    read_stored,
)
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Failure, Misconfigured, NoRoom, TryAgain
from groundwork.service.machine import set_within
from groundwork.telemetry.metrics import Instruments, RepeatMetrics

TRY_SECONDS = 1.0
"""Timeout of one attempt at what is safe to repeat: a dead leader never answers, and the next one does."""
FLUSHED_WITHIN_S = 2.0
BUDGET_SECONDS = 15.0
"""Electing a new leader in a cluster takes 4 to 9 s."""
RETRIED_WITHIN_S = 20.0
"""Time after which an attempt without an answer that was not repeated says nothing any more."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
UNSENT_BYTES = 8 * 1024 * 1024

Guard = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


@asynccontextmanager
async def connect(
    settings: NatsSettings, name: str = "agentic-loop", *, timeout_s: float = 5.0
) -> AsyncIterator["NatsLink"]:
    """Connects to the first server that answers; reconnects until it is left. `name`: shown by the server. Raises
    Unreachable when none answers in time, Misconfigured when the login is refused or a file cannot be used."""
    client = BusClient(settings)
    await client.open(name, within_s=timeout_s)
    link = NatsLink(client)
    try:
        yield link
    finally:
        await link.close()


class NatsLink:
    """A connection that reconnects by itself. Made by `connect`; for many tasks of one event loop."""

    def __init__(self, client: BusClient) -> None:
        self.servers, self.client = client.settings.servers, client
        self.guard: Guard = _always_permitted
        """Awaited before anything is published, sent or acknowledged; its errors prevent that."""
        self.repeats = RepeatMetrics(Instruments(), "", retries=(), dedupe=())
        """Counts of retries, duplicates and taken ids; the service that shows them sets its own."""
        self.store_failed = asyncio.Event()
        self.exclusive = False
        """True if no other process uses the consumers of this one, as its lease guarantees."""
        self._unanswered: dict[str, tuple[int, float, float]] = {}
        """Reconnects, and times of the first and last unanswered attempt to store, by the first tokens of its
        subject."""

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def reconnects(self) -> int:
        """Number of reconnects. The server forgets pending pulls each time."""
        return self.client.stats["reconnects"]

    async def until_back(self, *, within_s: float) -> None:
        """Returns at the next reconnect, or after `within_s`."""
        await set_within(self.client.back, within_s)

    @property
    def server_version(self) -> str:
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body that a message may have together."""
        return min(self.client.max_payload, LARGEST_MESSAGE)

    @property
    def unanswered_s(self) -> float:
        """Seconds since the oldest attempt to store over this connection that is repeated and still has no answer."""
        now = asyncio.get_running_loop().time()
        return now - min((self._unanswered_since(kind) or now for kind in self._unanswered), default=now)

    @property
    def denied(self) -> str:
        """Denied operations that matter, with the remedy; empty if there are none."""
        denials = self.client.denials
        what = ", ".join(f'{deed} to "{subject}"' for deed, subject in denials if not HARMLESS_DENIAL.match(subject))
        return what and f"NATS denies this login {what}: give it the permissions of its role (docs/BUS.md, Permissions)"

    async def publish(
        self,
        subject: str,
        body: bytes,
        *,
        msg_id: str,
        headers: Mapping[str, str],
        within_s: float = BUDGET_SECONDS,
        is_same: Callable[[StoredMessage | None], bool] | None = None,
    ) -> PubAck:
        """Stores one message, retrying under the same `msg_id` while that can help and `within_s` lasts; if another
        message has that id, under `msg_id#2` and so on. `is_same` compares a message of that id with this one (None: it
        is gone); without it, subject and body must be equal. Raises BusRefused (not stored, nor ever will be; with code
        10071 an earlier attempt of this call may have been), Misconfigured (no permission), NoRoom or TryAgain (not
        known to be stored: repeat it with the same id), Unreachable (closed for good)."""
        is_ours = is_same or (lambda stored: stored == StoredMessage(subject, body))
        for number in range(1, MOST_IDS + 1):
            name = msg_id if number == 1 else f"{msg_id}#{number}"
            published = await self.store(subject, body, {**headers, "Nats-Msg-Id": name}, within_s=within_s)
            if not published.duplicate:
                return published
            try:
                same = is_ours(await self.stored(published.stream, published.seq))
            except Misconfigured as error:  # this login may not read: trust the id
                log.warning("a duplicate in %s was not looked at: %s", published.stream, error)
                same = True
            if same:
                self.repeats.dedupe.add("publish")
                return published
            self.repeats.taken.add()
            place = f"message {published.seq} of {published.stream}"
            log.warning("%s: another message has the id %s, %s: publishing under the next id", subject, name, place)
        taken = f"{subject}: other messages have the id {msg_id} and all that would follow"
        raise BusRefused(f"{taken}: find who took them")

    async def store(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str],
        *,
        within_s: float = BUDGET_SECONDS,
        try_s: float = TRY_SECONDS,
        guarded: bool = True,
    ) -> PubAck:
        """Stores one message exactly as given, retrying while that can help; within 0 s, one attempt is made. `try_s`:
        timeout of an attempt. Raises as `publish` does."""
        clock, pause = asyncio.get_running_loop().time, SHORTEST_PAUSE
        deadline = clock() + within_s
        while True:
            asked_at = clock()
            try:
                if guarded:
                    await self.guard()
                answer = await self.client.ask(subject, body, headers, within_s=try_s)
                if self._unanswered:
                    self._unanswered.pop(_kind(subject), None)
                return read_ack(answer, subject)
            except TryAgain as error:
                if isinstance(error, Unanswered):
                    began = self._unanswered_since(_kind(subject)) or asked_at
                    self._unanswered[_kind(subject)] = self.reconnects, began, asked_at
                if clock() >= deadline:
                    kind, unknown = NoRoom if isinstance(error, NoRoom) else TryAgain, "is not known to be stored"
                    raise kind(f"{subject} {unknown}: {error}. A repetition is not stored twice") from error
                self.repeats.retries.add("publish", "try_again")
                self.store_failed.set()
            await self.until_back(within_s=min(pause, deadline - clock()))
            pause = min(pause + SHORTEST_PAUSE, LONGEST_PAUSE)

    async def stored(self, stream: str, seq: int) -> StoredMessage | None:
        """Message at `seq`; None if it is gone. Raises Misconfigured, and TryAgain after BUDGET_SECONDS without a
        leader."""
        return await self._read(stream, {"seq": seq})

    async def newest(self, stream: str, subject: str) -> StoredMessage | None:
        """Newest message of `subject`; None if there is none. Raises as `stored` does."""
        return await self._read(stream, {"last_by_subj": subject})

    async def send(self, subject: str, body: bytes, *, reply: str = "", headers: dict[str, str] | None = None) -> bool:
        """Sends what can be made again, without waiting for an answer. Returns False if it was not sent: while
        disconnected, if the socket is stuck, if the guard forbids it, and for what no server takes."""
        if self.client.pending_data_size > UNSENT_BYTES:
            return False
        try:
            await self.guard()
            await self.client.put(subject, body, reply=reply, headers=headers)
        except Failure as error:
            if isinstance(error, BusRefused):
                log.warning("a message is left out: %s", error)
            return False
        return True

    async def request(
        self,
        subject: str,
        body: bytes,
        *,
        timeouts_s: Sequence[float] = (5.0,),
        more_follow: Callable[[Msg], bool] | None = None,
    ) -> bytes:
        """Last answer; `more_follow` is called with each one and returns True if another follows. Asks again after each
        of `timeouts_s`. Raises as `BusClient.ask` does."""
        why = ""
        for timeout_s in timeouts_s:
            try:
                answer = await self.client.ask(subject, body, within_s=timeout_s, more_follow=more_follow)
                if (answer.headers or {}).get("Status") != "503":
                    return answer.data
                why = "nothing is there to answer"
            except TryAgain as error:
                why = str(error)
        raise TryAgain(f"{subject}: {why}")

    async def ask_jetstream(
        self, question: str, asked: Mapping[str, Any] | None = None, *, timeout_s: float = 5.0
    ) -> dict[str, Any]:
        """Answer of JetStream's API to a `question` such as `STREAM.INFO.NAME`. Raises NoSuchStream, NoSuchItem, NoRoom
        or BusRefused, TryAgain where it cannot answer, and Misconfigured where this login may not ask."""
        body = json.dumps(asked).encode() if asked else b""
        return read_answer(await self.client.ask(f"$JS.API.{question}", body, within_s=timeout_s), question)

    async def subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Subscribes in core NATS. The callback must return soon. Returns once the server knows the subscription, or
        will on the next connection."""
        made = await self.client.subscribe(subject, cb=callback)
        await self.client.flush_within(FLUSHED_WITHIN_S)
        return made

    async def switch_server(self) -> None:
        """Reconnects to another server, if there is one: this one may be cut off from the rest of its cluster."""
        if len(self.client.servers) > 1:
            await self.client.force_reconnect()

    async def wait_closed(self) -> None:
        """Returns once `close` was called. Raises Unreachable when NATS closed the connection for good."""
        await self.client.gone.wait()
        if not self.client.closing:
            raise self.client.closed_for_good()

    async def close(self, *, within_s: float = 3.0) -> None:
        """Flushes and closes. Does not drain, which can wait half a minute for nothing."""
        self.client.closing = True
        if self.connected:
            await self.client.flush_within(within_s)
        await self.client.close_within(within_s)

    def _unanswered_since(self, kind: str) -> float | None:
        reconnects, began, last = self._unanswered.get(kind, (-1, 0.0, 0.0))
        recent = asyncio.get_running_loop().time() - last < RETRIED_WITHIN_S
        return began if recent and reconnects == self.reconnects else None

    async def _read(self, stream: str, wanted: Mapping[str, Any]) -> StoredMessage | None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + BUDGET_SECONDS
        while True:
            try:
                return read_stored(await self.ask_jetstream(f"STREAM.MSG.GET.{stream}", wanted, timeout_s=TRY_SECONDS))
            except NoSuchItem:
                return None
            except TryAgain:
                await self.until_back(within_s=SHORTEST_PAUSE if self.connected else LONGEST_PAUSE)
                if clock() >= deadline or not self.connected:
                    raise


def _kind(subject: str) -> str:
    """Subjects of single runs, mostly used once, have the kind of others in their stream."""
    return ".".join(subject.split(".", 2)[:2])


async def _always_permitted() -> None:
    return
