"""nats-py's client with its gaps closed, and the state of its connection.

- Where TLS is required, a server without it is told nothing: nats-py would log in in the clear.
- Replies go only to inboxes: any other reply subject would make us publish where the sender may not.
- A server that was left, or that hung up, is tried last.
- An abandoned flush breaks nothing: nats-py would stop reading once the server's answer comes after all.
- One subscription receives all answers: nats-py makes an id, an inbox and a timed wait for each request.
- Headers are parsed in one pass: nats-py makes a call for each letter of a name.
- Subscriptions with a limit and push subscriptions of JetStream are left out: no caller here uses them.
- A block of headers that is none, and subjects that are not UTF-8 or hold a form feed, are borne: nats-py would stop
  reading, and after a reconnect do so again at a message that a stream has stored.
- A subject or size at which the server would close the connection for good is refused here.

It overrides private parts of nats-py; tests on real servers notice when these change. While a server is away nats-py
reports the same error four times a second: only the first is logged.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol import parser

from groundwork.nats.publishing import BusRefused, read_headers
from groundwork.nats.settings import NatsSettings, client_options
from groundwork.service.errors import Failure, Misconfigured, TryAgain, Unreachable
from groundwork.service.json_log import Outage
from groundwork.service.machine import monotonic

MAX_SUBJECT = 255
LARGEST_MESSAGE = 1024 * 1024
"""Bytes of headers and body together: nats-server's default, and our limit where a server takes more."""
HEADER_BLOCK_BYTES = len(b"NATS/1.0\r\n\r\n")
HEADER_LINE_BYTES = len(b": \r\n")
SUBJECT = re.compile(r"[!-)+-\-/-=?-~]+(?:\.[!-)+-\-/-=?-~]+)*")
"""Tokens of printable ASCII without wildcards, separated by single dots."""
HARMLESS_DENIAL = re.compile(r"\$js\.api\.(?!consumer\.msg\.next\.)|\$js\.fc\.|\$sys\.|\$srv|_inbox|_r_")
"""Prefixes of subjects, in lower case as the server reports them, whose denial only prevents a query or a reply."""
INBOX = "_INBOX"
REPLY_SUBJECTS = (INBOX.encode(), b"_R_.")
"""Inboxes of this account, and of others."""
JETSTREAM_REPLIES = (b"$JS.ACK.", b"$JS.FC.")
"""Acknowledgements of what was delivered to our own inbox."""
REFUSED = "the login is refused. Check user, password, token, nkey or credentials"
START_ONE = "start one with `agentic dev`, or set nats.urls"
MOST_DENIALS, DENIED_FOR_S = 100, 60.0
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_LOST_CONNECTION = (nats.errors.UnexpectedEOF, nats.errors.StaleConnectionError, ConnectionError)

parser.MSG_RE, parser.HMSG_RE = (
    re.compile(line.pattern.replace(rb"[^\s]", rb"[^ \t\r\n]")) for line in (parser.MSG_RE, parser.HMSG_RE)
)

log = logging.getLogger(__name__)


class NotEncrypted(nats.errors.Error):
    def __str__(self) -> str:
        return (
            "it does not speak TLS, which `tls://` or the TLS files of the settings ask for, so it was told nothing, no"
            " login either. Give the server a section tls, or, on this machine alone, take the settings out"
        )


class Unanswered(TryAgain):
    """No answer came in time, over a connection that was there."""


class BusClient(Client):
    def __init__(self, settings: NatsSettings) -> None:
        super().__init__()
        self.settings = settings
        self._outage = Outage("NATS", log)
        self._last_logged = ""
        self._prefix = ""
        self._answers: Subscription | None = None
        self._numbers = itertools.count(1)
        self._asked: dict[str, tuple[str, asyncio.Future[Msg], Callable[[Msg], bool] | None]] = {}
        self._denials: dict[tuple[str, str], float] = {}
        self.logged_in = False
        self.closing = False
        """True once this process closes the connection."""
        self.back = asyncio.Event()
        """Set when the connection is got back, and replaced by another event."""
        self.gone = asyncio.Event()
        self.trouble = ""

    async def open(self, name: str, *, within_s: float) -> None:
        """Raises Unreachable when no server answers in time, Misconfigured when the login or a file is refused."""
        options, at = client_options(self.settings, name), self.settings.servers
        try:
            async with asyncio.timeout(within_s):
                await self.connect(
                    **options,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnect,
                    reconnected_cb=self._on_reconnect,
                    closed_cb=self._on_close,
                )
                self._prefix = self.new_inbox() + "."
                self._answers = await self.subscribe(self._prefix + "*")
                self.logged_in = True
        except TimeoutError as error:
            absent = f"no NATS server at {at} within {within_s:g} s ({self.trouble or 'no answer'})"
            raise Unreachable(f"{absent}: {START_ONE}") from error
        except Failure as error:
            raise Misconfigured(f"NATS at {at}: {error}") from error
        except Exception as error:
            kind = type(error).__name__  # the text may quote an address with its password, or a key
            raise Misconfigured(f"the address or login for NATS at {at} cannot be used ({kind})") from error
        finally:
            if not self.logged_in:
                await self.close_within(1.0)

    async def ask(
        self,
        subject: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        within_s: float,
        more_follow: Callable[[Msg], bool] | None = None,
    ) -> Msg:
        """Last answer to a message. `more_follow` is called with each answer and returns True if another follows.
        Raises as `put` does, TryAgain, and Misconfigured where this login is denied the subject."""
        address = f"{self._prefix}{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Msg] = loop.create_future()
        self._asked[address] = (subject, answer, more_follow)
        alarm = loop.call_later(within_s, _fail, answer)
        try:
            await self.put(subject, body, reply=address, headers=headers)
            return await answer
        finally:
            alarm.cancel()
            del self._asked[address]

    async def put(self, subject: str, body: bytes, *, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Raises BusRefused for what the server does not take, TryAgain while disconnected, and Unreachable once
        closed."""
        if len(subject) > MAX_SUBJECT or not SUBJECT.fullmatch(subject):
            raise BusRefused(
                f"not a subject to publish to: {subject[:80]!r} ({len(subject)} characters). It has to be at most"
                f" {MAX_SUBJECT} printable ASCII characters in tokens separated by dots, without wildcards"
            )
        size, limit = len(body), min(self.max_payload, LARGEST_MESSAGE)
        if headers:
            text = "".join((*headers, *headers.values()))
            size += HEADER_BLOCK_BYTES + HEADER_LINE_BYTES * len(headers) + len(text)
            if size + 3 * len(text) > limit:  # a character has four bytes at most: only here is it worth encoding
                size += len(text.encode(errors="surrogatepass")) - len(text)
        if size > limit:
            raise BusRefused(
                f"a message to {subject} has {size} bytes with its headers, and {limit} are the most that it may have:"
                " store the content as an artifact and send its reference"
            )
        try:
            await self.publish(subject, body, reply=reply, headers=headers)
        except nats.errors.OutboundBufferLimitError as error:
            raise TryAgain("not connected to NATS") from error
        except nats.errors.ConnectionClosedError as error:
            raise self.closed_for_good() from error
        except (nats.errors.Error, UnicodeError) as error:
            raise BusRefused(f"not a message for {subject}: {error}") from error

    async def flush_within(self, seconds: float) -> None:
        """In a task of its own: nats-py's timed wait may lose a cancel that comes with the answer (Python 3.11)."""
        flushing = asyncio.create_task(self.flush())
        flushing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({flushing}, timeout=seconds)
        finally:
            flushing.cancel()

    async def close_within(self, seconds: float) -> None:
        # uvloop raises RuntimeError where the connection has just been closed from the other side; nats-py asserts that
        # there was one.
        with suppress(nats.errors.Error, OSError, RuntimeError, AssertionError, TimeoutError):
            await asyncio.wait_for(self.close(), seconds)

    def closed_for_good(self) -> Unreachable:
        return Unreachable(f"NATS closed the connection for good ({self.trouble}): restart the service")

    @property
    def denials(self) -> tuple[tuple[str, str], ...]:
        """Operations and subjects denied in the last DENIED_FOR_S seconds: the server does not tell when a permission
        was granted."""
        return tuple(denial for denial, at in self._denials.items() if monotonic() - at < DENIED_FOR_S)

    async def _on_error(self, error: Exception) -> None:
        self.trouble = str(error) or type(error).__name__
        if "permissions violation" in self.trouble:
            self._note_violation(self.trouble.removeprefix("nats: "))
        refused = REFUSED if "authorization violation" in self.trouble.lower() else ""
        if not self.logged_in and (refused or isinstance(error, NotEncrypted)):
            # Raised here, it ends the client's first attempt to connect, which would go on forever.
            raise Misconfigured(refused or self.trouble)
        if self.logged_in and not self.is_connected:
            self._note_outage()
        elif not isinstance(error, _LOST_CONNECTION) and self.trouble != self._last_logged:
            self._last_logged = self.trouble
            log.warning("NATS: %s", self.trouble)
        elif not (self.logged_in or self._last_logged):
            self._last_logged = self.trouble
            log.info("NATS does not answer yet", extra={"nats": self.settings.servers, "why": self.trouble})

    def _note_outage(self) -> None:
        if not self.closing:
            self._outage.continues(self.trouble or "the connection was lost")

    def _note_violation(self, violation: str) -> None:
        error = Misconfigured(f"NATS denies us this subject: {violation}. Give this user the permission")
        for operation, subject in _VIOLATION.findall(violation):
            self._denials[operation, subject] = monotonic()
            if len(self._denials) > MOST_DENIALS:  # such as an acknowledgement's subject per message
                del self._denials[next(iter(self._denials))]
            for asked, answer, _ in self._asked.values():
                if operation == "publish" and asked.lower() == subject:
                    _fail(answer, error)

    async def _on_disconnect(self) -> None:
        self._lose(TryAgain("the connection to NATS was lost before the answer came"))

    async def _on_reconnect(self) -> None:
        self.back.set()
        self.back = asyncio.Event()
        self._last_logged = ""
        self._note_outage()  # not noted yet if the first attempt succeeded
        self._outage.over()

    async def _on_close(self) -> None:
        self.gone.set()
        self._lose(self.closed_for_good())

    def _lose(self, error: Failure) -> None:
        for _, answer, _ in self._asked.values():
            _fail(answer, error)

    def _connect_command(self) -> bytes:
        if self.settings.encrypted and not self._speaks_tls():
            if self._transport:
                # nats-py leaves it open when it tries the next one, and its annotation out.
                self._transport.close()  # type: ignore[no-untyped-call]
            raise NotEncrypted
        if self._speaks_tls():  # asyncio is told, which warns at each end of a connection otherwise
            getattr(self._transport, "_io_writer").transport.get_protocol()._over_ssl = True  # noqa: B009 # nats-py's own
        command: bytes = super()._connect_command()
        return command

    def _speaks_tls(self) -> bool:
        writer = getattr(self._transport, "_io_writer", None)
        return writer is not None and writer.get_extra_info("ssl_object") is not None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.settings.encrypted and not self._speaks_tls():
            info = {name: value for name, value in info.items() if name != "connect_urls"}
        await super()._process_info(info, initial_connection)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        heard_on = self._subs.get(sid)
        if heard_on is None:
            return
        is_of_jetstream = reply.startswith(JETSTREAM_REPLIES) and heard_on.subject.startswith(INBOX)
        if not (is_of_jetstream or reply.startswith(REPLY_SUBJECTS)):
            reply = b""
        names = subject.decode(errors="replace"), reply.decode(errors="replace")
        message = Msg(self, *names, data, (headers and read_headers(headers)) or None, _sid=sid)
        if heard_on is self._answers:
            self._take(message)
        elif heard_on._pending_size + len(data) > heard_on._pending_bytes_limit or heard_on._pending_queue.full():
            await self._on_error(nats.errors.SlowConsumerError(*names, sid, heard_on))
        else:
            heard_on._pending_size += len(data)
            heard_on._pending_queue.put_nowait(message)

    def _take(self, message: Msg) -> None:
        if message.subject in self._asked:
            _, answer, more_follow = self._asked[message.subject]
            try:
                if not (more_follow and more_follow(message)) and not answer.done():
                    answer.set_result(message)
            except Exception as error:  # noqa: BLE001 - nats-py would stop reading
                _fail(answer, TryAgain(f"the answer cannot be read ({type(error).__name__})"))

    async def _select_next_server(self) -> None:
        left = self._current_server
        if left is not None and left in self._server_pool:
            self._server_pool.remove(left)
            self._server_pool.append(left)
        await super()._select_next_server()

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


def _fail(answer: asyncio.Future[Msg], error: Failure | None = None) -> None:
    if not answer.done():
        answer.set_exception(error or Unanswered("no answer in time"))
