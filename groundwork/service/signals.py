"""Being told to stop by a signal: a command or service ends in good order, with all it started."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

OF_A_SERVICE = (signal.SIGTERM, signal.SIGINT)
OF_A_COMMAND = (*OF_A_SERVICE, signal.SIGHUP)
"""Also a closed terminal."""


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
