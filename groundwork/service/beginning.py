"""The first tenths of a second of a process: when to look for cyclic garbage, and how a command ends during imports.

With Python's defaults the collector took an eighth of a busy service's CPU.
"""

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from groundwork.service.errors import Exit, Misconfigured

NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS = 50_000, 50, 100


def collect_seldom() -> None:
    """For this process, from now on. What was made before (modules, models) is left out of every look."""
    gc.freeze()
    gc.set_threshold(NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS)


@contextmanager
def uncollected() -> Iterator[None]:
    """While modules are loaded, nothing becomes garbage: looking for it is an eighth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(main: str, serve: str) -> None:
    """Calls `main` (both are `module:name`), or for `serve` and `serve --config FILE` alone that. Ctrl-C ends the
    process without a traceback, also during imports. Raises SystemExit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with uncollected():
        command = command_of(main, serve, sys.argv[1:])
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def command_of(main: str, serve: str, arguments: Sequence[str]) -> Callable[[], None]:
    """The service itself comes without the parts of other commands (help, drawings, an HTTP client): they take 0.1 s to
    load, and it may have been killed with work in hand."""
    match arguments:
        case ["serve"] | ["serve", "--config", _]:
            served = loaded(serve)
        case _:
            run: Callable[[], None] = loaded(main)
            return run

    def service() -> None:
        try:
            sys.exit(served(Path(arguments[-1]) if len(arguments) > 1 else None))
        except Misconfigured:
            loaded(main)(arguments)  # it says what is wrong as all commands do

    return service


def loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
