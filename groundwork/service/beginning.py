"""The first tenths of a second of a process: when to look for cyclic garbage, and how a command ends during imports.

With Python's defaults the collector took an eighth of a busy service's CPU.
"""

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS = 50_000, 50, 100


def collect_seldom() -> None:
    """For this process, from now on. What was made before (modules, models) is left out of every look."""
    gc.freeze()
    gc.set_threshold(NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS)


@contextmanager
def uncollected() -> Iterator[None]:
    """While modules are loaded, of which nothing becomes garbage: looking for it is an eighth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


INTERRUPTED = 130


def run(load: Callable[[], Callable[[], None]]) -> None:
    """Do what `load` returns. Ctrl-C ends the process without a traceback, also during imports. Raises SystemExit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with uncollected():
        command = load()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
