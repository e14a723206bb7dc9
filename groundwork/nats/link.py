"""The link to the bus: connect once, publish with an acknowledgement, tell without one, close.

Every publish is tried again under the same Nats-Msg-Id; where the stream has that id already, its message is compared.
Nothing is buffered while disconnected; no subject or size leaves that would make the server close the connection for
good.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from groundwork.nats.connection import SPARED, BusClient, apart
from groundwork.nats.publishing import (
    LARGEST_MESSAGE,
    PENDING,
    NotThere,
    Published,
    Refused,
    StoredMessage,
    check_message,
    ids,
    read_ack,
    read_answer,
    read_direct,
    read_stored,
)
from groundwork.nats.settings import NatsSettings, client_options
from groundwork.service.errors import Failure, Misconfigured, NoRoom, TryAgain, Unreachable

TRY_SECONDS = 1.0
"""What is safe to repeat is said again after so long: a leader that died answers nothing, and the next one does."""
ONLY_TRY_SECONDS = 2.0
BUDGET_SECONDS = 15.0  # electing a new leader in a cluster takes 4 to 9 s
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
READ_AT_ONCE = 256
UNSENT_BYTES = 8 * 1024 * 1024

Guard = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


async def connect(settings: NatsSettings, *, name: str = "agentic-loop", timeout_s: float = 10.0) -> "NatsLink":
    """To the first server that answers; reconnects for ever. `name`: on the server. Raises Unreachable when none
    answers in time, Misconfigured when the login is refused or a file cannot be used."""
    client, options, at = BusClient(encrypted=settings.encrypted), client_options(settings, name), settings.servers
    try:
        async with asyncio.timeout(timeout_s):
            await client.connect(**options, **client.callbacks)
            await client.listen()
    except TimeoutError as error:
        raise Unreachable(f"no NATS server at {at} within {timeout_s:g} s: {client.trouble or 'no answer'}") from error
    except Failure as error:
        raise Misconfigured(f"NATS at {at}: {error}") from error
    except Exception as error:
        kind = type(error).__name__  # the text may quote an address with its password, or a key
        raise Misconfigured(f"the address or login for NATS at {at} cannot be used ({kind})") from error
    finally:
        if not client.logged_in:  # given up half way
            await _close(client, within_s=1.0)
    return NatsLink(client, servers=at)


class NatsLink:
    """A connection that comes back by itself. Made by `connect`; for many tasks of one event loop."""

    def __init__(self, client: BusClient, *, servers: str) -> None:
        self.servers, self.client = servers, client
        self.permitted: Guard = _nothing_to_ask
        self.id_was_taken: Callable[[], None] = lambda: None
        self.was_there: Callable[[], None] = lambda: None
        self.tries_again: Callable[[], None] = lambda: None
        self.stuck = asyncio.Event()
        self.alone = False
        """Whether no other process consumes what this one does: its lease says so."""
        self._unanswered: dict[str, tuple[int, float]] = {}

    def guard_by(self, guard: Guard) -> None:
        """From now on nothing is published, told or acknowledged unless `guard` returns; what it raises is raised."""
        self.permitted = guard

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def reconnects(self) -> int:
        """How often the connection was got back: what the server had been asked before is forgotten each time."""
        return self.client.stats["reconnects"]

    @property
    def server_version(self) -> str:
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body together: what the server takes, and never more than LARGEST_MESSAGE."""
        return min(self.client.max_payload, LARGEST_MESSAGE)

    @property
    def unanswered_s(self) -> float:
        """For how long something that was to be stored has had no answer, over this connection."""
        began = [at for reconnects, at in self._unanswered.values() if reconnects == self.reconnects]
        return asyncio.get_running_loop().time() - min(began) if began else 0.0

    @property
    def denied(self) -> str:
        """What this login was denied, and what to do; empty for nothing that matters."""
        denials = self.client.denials
        told = ", ".join(f'{deed} to "{subject}"' for deed, subject in denials if not SPARED.match(subject))
        return told and f"NATS denies this login {told}: give it the permissions of its role (docs/BUS.md, Permissions)"

    @property
    def jetstream(self) -> JetStreamContext:
        return self.client.jetstream()

    async def publish(
        self,
        subject: str,
        body: bytes,
        *,
        msg_id: str,
        headers: Mapping[str, str],
        within_s: float = BUDGET_SECONDS,
        is_same: Callable[[StoredMessage], bool] | None = None,
    ) -> Published:
        """Stores one message, trying again under the same `msg_id` while that can help and `within_s` lasts; where
        another message has that id, under `msg_id#2` and so on. `is_same`: whether that one says what this one does;
        without it, word for word. Raises Refused (not stored, nor ever will be; with code 10071 an earlier try of this
        call may have been), Misconfigured (no permission), NoRoom or TryAgain (not known to be stored:
        repeat it with the same id), Unreachable (closed for good)."""
        for name in ids(msg_id):
            published = await self.keep(subject, body, {**headers, "Nats-Msg-Id": name}, within_s=within_s)
            if not published.duplicate:
                return published
            if await self._is_ours(published, is_same or StoredMessage(subject, body).__eq__):
                self.was_there()
                return published
            self.id_was_taken()
            log.warning("%s: message %s of %s has the id %s", subject, published.seq, published.stream, name)
        raise Refused(f"{subject}: other messages have the id {msg_id} and all that would follow: find who took them")

    async def keep(
        self, subject: str, body: bytes, headers: Mapping[str, str], *, within_s: float = BUDGET_SECONDS
    ) -> Published:
        """Stores one message just as it is, trying again while that can help. Raises as `publish` does."""
        check_message(subject, body, headers, limit=self.max_payload)
        clock, pause = asyncio.get_running_loop().time, SHORTEST_PAUSE
        deadline = clock() + within_s
        while True:
            try:
                await self.permitted()
                return await self._store(subject, body, dict(headers), min(within_s, TRY_SECONDS))
            except TryAgain as error:
                if clock() >= deadline:
                    text = f"{subject} is not known to be stored: {error}. Repeat it with the same id"
                    raise NoRoom(text) if isinstance(error, NoRoom) else TryAgain(text) from error
                self.tries_again()
                self.stuck.set()
            await self._pause(min(pause, deadline - clock()))
            pause = min(pause + SHORTEST_PAUSE, LONGEST_PAUSE)

    async def swap(self, subject: str, body: bytes, *, after: int) -> int:
        """Stores if the newest of the subject has sequence `after`, 0 for none; returns its own. One try, without the
        guard. Raises Refused with code 10071 if it is another, or an earlier try of the same; TryAgain."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        check_message(subject, body, headers, limit=self.max_payload)
        return (await self._store(subject, body, headers, ONLY_TRY_SECONDS)).seq

    async def stored(self, stream: str, seq: int) -> StoredMessage | None:
        """None where it is gone. Raises Misconfigured, and TryAgain where no leader has answered for BUDGET_SECONDS."""
        return await self._read(stream, {"seq": seq})

    async def newest(self, stream: str, subject: str) -> StoredMessage | None:
        return await self._read(stream, {"last_by_subj": subject})

    async def read(self, stream: str, subject: str, after: int, most: int) -> list[StoredMessage]:
        """The first `most` messages of a subject, which may be a pattern, behind a sequence, as one of the stream's
        servers has them: it may be behind. Raises TryAgain."""
        question = f"$JS.API.DIRECT.GET.{stream}"
        found: list[StoredMessage] = []

        def goes_on(answer: Msg) -> bool:
            message = read_direct(answer)
            found.extend([message] if message else [])
            return message is not None

        while len(found) < most:
            seq = (found[-1].seq if found else after) + 1
            wanted = {"seq": seq, "next_by_subj": subject, "batch": min(most - len(found), READ_AT_ONCE)}
            body = json.dumps(wanted).encode()
            last = await self.client.ask(question, body, None, within_s=TRY_SECONDS, goes_on=goes_on)
            told = last.headers or {}
            if told.get("Status") not in ("204", "404"):
                raise TryAgain(f"{question}: {told.get('Status')} {told.get('Description', '')}")
            if not int(told.get(PENDING, 0)):
                break
        return found

    async def tell(self, subject: str, body: bytes, *, msg_id: str, headers: Mapping[str, str]) -> bool:
        """Sends an event that can be made again; no answer is awaited. False if it was not sent. Raises Refused."""
        named = {**headers, "Nats-Msg-Id": msg_id}
        check_message(subject, body, named, limit=self.max_payload)
        return await self.send(subject, body, headers=named)

    async def send(self, subject: str, body: bytes, *, reply: str = "", headers: dict[str, str] | None = None) -> bool:
        """To a subject that the server gave us, unchecked. False if disconnected, the socket is stuck, or the guard
        forbids it."""
        if self.client.pending_data_size > UNSENT_BYTES:
            return False
        try:
            await self.permitted()
            await self.client.put(subject, body, reply=reply, headers=headers)
        except (TryAgain, Unreachable, Misconfigured):
            return False
        return True

    async def request(
        self, subject: str, body: bytes, *, timeout_s: float = 5.0, goes_on: Callable[[Msg], bool] = lambda _: False
    ) -> bytes:
        """The last answer; `goes_on` is given each, and says whether another follows. Raises TryAgain."""
        try:
            answer = await self.client.ask(subject, body, {}, within_s=timeout_s, goes_on=goes_on)
        except Failure as error:
            raise TryAgain(f"{subject}: {error}") from error
        if (answer.headers or {}).get("Status") == "503":
            raise TryAgain(f"{subject}: nothing is there to answer")
        return answer.data

    async def ask_jetstream(
        self, question: str, asked: Mapping[str, Any] | None = None, *, timeout_s: float = 5.0
    ) -> dict[str, Any]:
        """The answer of JetStream's API to `question` (`STREAM.INFO.NAME`). Raises NoSuchStream, NotThere, NoRoom or
        Refused, TryAgain where it cannot answer, and Misconfigured where this login may not ask."""
        body = json.dumps(asked).encode() if asked else b""
        return read_answer(await self.client.ask(f"$JS.API.{question}", body, {}, within_s=timeout_s), question)

    async def subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Core NATS. The callback has to return soon. The server knows of it on return, or will on the next
        connection."""
        made = await self.client.subscribe(subject, cb=callback)
        await apart(self.client.flush(), within_s=ONLY_TRY_SECONDS)
        return made

    async def go_elsewhere(self) -> None:
        """Leave this server for another, if there is another: it may be cut off from those that matter."""
        if len(self.client.servers) > 1:
            await self.client.force_reconnect()

    def new_inbox(self) -> str:
        return self.client.new_inbox()

    async def until_lost(self) -> None:
        await self.client.gone.wait()
        if not self.client.closing:
            raise self.client.closed_for_good()

    async def close(self, *, within_s: float = 3.0) -> None:
        """Sends what is still to be sent, then closes. Never drains: that can wait half a minute for nothing."""
        self.client.closing = True
        if self.connected:
            await apart(self.client.flush(), within_s=within_s)
        await _close(self.client, within_s=within_s)

    async def _store(self, subject: str, body: bytes, headers: dict[str, str], patience_s: float) -> Published:
        asked_at = asyncio.get_running_loop().time()
        try:
            answer = await self.client.ask(subject, body, headers, within_s=patience_s)
        except TryAgain:
            if self.connected:
                self._unanswered.setdefault(subject, (self.reconnects, asked_at))
            raise
        self._unanswered.pop(subject, None)
        return read_ack(answer, subject)

    async def _read(self, stream: str, wanted: Mapping[str, Any]) -> StoredMessage | None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + BUDGET_SECONDS
        while True:
            try:
                return read_stored(await self.ask_jetstream(f"STREAM.MSG.GET.{stream}", wanted, timeout_s=TRY_SECONDS))
            except NotThere:
                return None
            except TryAgain:
                await self._pause(SHORTEST_PAUSE)
                if clock() >= deadline or not self.connected:
                    raise

    async def _is_ours(self, published: Published, is_same: Callable[[StoredMessage], bool]) -> bool:
        try:
            stored = await self.stored(published.stream, published.seq)
        except Misconfigured as error:  # this login may not look: all that is left is to believe it
            log.warning("a duplicate in %s was not looked at: %s", published.stream, error)
            return True
        return stored is not None and is_same(stored)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_PAUSE):
                    await self.client.up.wait()


async def _nothing_to_ask() -> None:
    return


async def _close(client: BusClient, *, within_s: float) -> None:
    # uvloop raises RuntimeError where the connection has just been closed from the other side.
    with contextlib.suppress(nats.errors.Error, OSError, RuntimeError, TimeoutError):
        await asyncio.wait_for(client.close(), within_s)
