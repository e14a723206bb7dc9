"""Ends a command or service in good order on a signal, and tells systemd that it is ready (sd_notify(3))."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

OF_A_SERVICE = (signal.SIGTERM, signal.SIGINT)
OF_A_COMMAND = (*OF_A_SERVICE, signal.SIGHUP)


@contextmanager
def cancelled_by_signals(
    stopping: Callable[[], None], signals: tuple[signal.Signals, ...] = OF_A_COMMAND
) -> Iterator[None]:
    """The first signal cancels the current task and calls `stopping`; while that unwinds, further ones are ignored."""
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


@contextmanager
def ended_by_signals(stopping: Callable[[], None]) -> Iterator[None]:
    """For a service: as above, and when all is unwound the context is left as if its work were done."""
    ended = False

    def end() -> None:
        nonlocal ended
        ended = True
        stopping()

    try:
        with cancelled_by_signals(end, OF_A_SERVICE):
            yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not ended or task is None or task.uncancel():
            raise


def tell_ready(environ: Mapping[str, str] = os.environ) -> None:
    """What waits for this service begins now. A supervisor that does not listen costs nothing but its waiting."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)
