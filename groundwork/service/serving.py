"""Running a service until a signal ends it; the reason of another end is one line of its log.

systemd is notified when the service is ready (sd_notify(3)). The listening socket exists before the HTTP server is
imported, so that callers wait instead of failing.
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvloop

from groundwork.service import json_log, process, program
from groundwork.service.config_file import LogSettings
from groundwork.service.errors import Exit, Misconfigured, complaint_of
from groundwork.service.store_folder import retry_until_free

log = logging.getLogger(__name__)


def serve(
    log_settings: LogSettings,
    secrets: Collection[str],
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    aside: Collection[str] = (),
) -> Exit:
    """Runs `work` until SIGTERM or SIGINT. `secrets` never appear in the log; `aside`: fields left out of text for
    people."""
    json_log.set_up(log_settings.level.upper(), log_settings.format, redact=secrets, aside=aside)
    program.collect_seldom()
    process.hide_memory()
    try:
        uvloop.run(_until_told(work))
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            log.critical("the service failed: report it with this log", exc_info=error)
            return Exit.FAILED
        log.critical("%s", str(complaint))
        return complaint.exit_code
    return Exit.OK


async def _until_told(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(asyncio.CancelledError), cancelled_by_signals(lambda: log.info("stopping"), SERVICE_SIGNALS):
        await work()
    log.info("stopped")


SERVICE_SIGNALS = (signal.SIGTERM, signal.SIGINT)
COMMAND_SIGNALS = (*SERVICE_SIGNALS, signal.SIGHUP)


@contextmanager
def cancelled_by_signals(
    stopping: Callable[[], None], signals: tuple[signal.Signals, ...] = COMMAND_SIGNALS
) -> Iterator[None]:
    """The first signal cancels the current task and calls `stopping`; others are ignored."""
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
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


HEAD_START_S = 0.5


async def let_recovery_start() -> None:
    """Gives recovery the processor for itself before callers are served."""
    await asyncio.sleep(HEAD_START_S)


def notify_ready() -> None:
    """Notifies the supervisor. If it does not listen, only units that wait for this one are delayed."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)


@contextlib.asynccontextmanager
async def listening(host: str, port: int, *, who: str, within_s: float = 0.0) -> AsyncIterator[socket.socket]:
    """Listening socket. `within_s`: time to wait for a process that still has the address. Raises Misconfigured, which
    names `who` may have it, as in `another agent`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def listen() -> socket.socket:
        return socket.create_server((host, port), family=family, backlog=1024)

    try:
        listener = await retry_until_free(listen, within_s=within_s)
    except OSError as error:
        mend = f"is another {who} running there?" if error.errno == errno.EADDRINUSE else "set another `host` or `port`"
        raise Misconfigured(f"cannot listen on {host}:{port} ({error.strerror}): {mend}") from error
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
