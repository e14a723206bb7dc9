"""The client of nats-py, and what it does not do.

- Where TLS was asked for, nothing is told to a server without it, nor believed from it: nats-py logs in in the clear.
- An answer goes only to a subject where clients listen for answers: any other would have us say what its asker may not.
- Whoever is cancelled while its answer comes is cancelled: the timed wait of nats-py may lose that (Python 3.11).
- A server that was left, or that hung up, is the last to be asked again.
- A flush that was given up breaks nothing: nats-py ends its reading when the server's answer comes after all.

It overrides what nats-py keeps for itself, and tests on real servers notice when that is called otherwise.
"""

import asyncio
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

INBOX = "_INBOX"
ANSWERS = (INBOX.encode(), b"_R_.")
"""How subjects begin where answers are heard: in the account, and from another one."""
OF_JETSTREAM = (b"$JS.ACK.", b"$JS.FC.")
"""Where what was delivered to our own inbox is acknowledged."""


class NotEncrypted(nats.errors.Error):
    """The server does not speak TLS."""

    def __str__(self) -> str:
        return (
            "it does not speak TLS, which `tls://` or the TLS files of the settings ask for, so it was told nothing, no"
            " login either. Give the server a section tls, or, on this machine alone, take the settings out"
        )


class BusClient(Client):
    def __init__(self, *, encrypted: bool) -> None:
        super().__init__()
        self._encrypted = encrypted

    def _connect_command(self) -> bytes:
        if self._encrypted and not self._speaks_tls():
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
        if self._encrypted and not self._speaks_tls():
            info = {name: told for name, told in info.items() if name != "connect_urls"}
        await super()._process_info(info, initial_connection)

    async def request(self, *args: Any, **options: Any) -> Msg:
        asking = asyncio.ensure_future(super().request(*args, **options))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({asking})
        finally:
            asking.cancel()
        return asking.result()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        if reply and not reply.startswith(ANSWERS) and not self._is_delivery(sid, reply):
            reply = b""
        message: Msg = super()._build_message(sid, subject, reply, data, headers)
        return message

    def _is_delivery(self, sid: int, reply: bytes) -> bool:
        return reply.startswith(OF_JETSTREAM) and sid in self._subs and self._subs[sid].subject.startswith(INBOX)

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
