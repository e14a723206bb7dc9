"""A service until it is told to stop. What ends it is said in its log, in one line.

A command or service ends in good order on a signal, and systemd is told when it is ready (sd_notify(3)). The socket
that a service listens on is there before the server is loaded, so that callers wait instead of failing.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import uvloop

from groundwork.service import json_log, process, program
from groundwork.service.config_file import LogSettings
from groundwork.service.errors import Exit, Misconfigured, complaint_of
from groundwork.service.store_folder import once_free

log = logging.getLogger(__name__)


def serve(
    log_settings: LogSettings,
    secrets: Collection[str],
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    aside: Collection[str] = (),
) -> Exit:
    """`secrets` never appear in the log; `aside` are fields left out of text for people."""
    json_log.set_up(log_settings.level.upper(), log_settings.format, redact=secrets, aside=aside)
    program.collect_seldom()
    process.hide_memory()
    try:
        uvloop.run(work())
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            log.critical("the service failed: report it with this log", exc_info=error)
            return Exit.FAILED
        log.critical("%s", str(complaint))
        return complaint.exit_code
    return Exit.OK


OF_A_SERVICE = (signal.SIGTERM, signal.SIGINT)
OF_A_COMMAND = (*OF_A_SERVICE, signal.SIGHUP)


@contextmanager
def cancelled_by_signals(
    stopping: Callable[[], None], signals: tuple[signal.Signals, ...] = OF_A_COMMAND
) -> Iterator[None]:
    """The first signal cancels the current task and calls `stopping`; while that unwinds, further ones are ignored. A
    service, OF_A_SERVICE, leaves the context then as if its work were done."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked and task is not None:
            asked = True
            task.cancel()
            with suppress(OSError):  # the terminal may be gone
                stopping()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not asked or signals is not OF_A_SERVICE or task is None or task.uncancel():
            raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


HEAD_START_S = 0.5


async def head_start() -> None:
    """What is under way has the processor for itself before callers come in."""
    await asyncio.sleep(HEAD_START_S)


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """What waits for this service begins now. A supervisor that does not listen costs nothing but its waiting."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)


@contextlib.asynccontextmanager
async def listening(host: str, port: int, *, who: str, within_s: float = 0.0) -> AsyncIterator[socket.socket]:
    """A listening socket; `within_s`: how long to wait for another that still has it. Raises Misconfigured: `who` is
    asked whether it has it, as in `another agent`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def listen() -> socket.socket:
        return socket.create_server((host, port), family=family, backlog=1024)

    try:
        listener = await once_free(listen, within_s=within_s)
    except OSError as error:
        where = f"{host}:{port}"
        raise Misconfigured(f"cannot listen on {where} ({error.strerror}): is another {who} running there?") from error
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"
