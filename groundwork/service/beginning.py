"""The first tenths of a second of a command, in which its modules are loaded."""

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from groundwork.service import garbage

INTERRUPTED = 130


def run(load: Callable[[], Callable[[], None]]) -> None:
    """Do what `load` returns once its modules are there. Ctrl-C ends the process without a traceback at any time: of
    imports, of the command line, of what has nothing to say about it. Raises SystemExit."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with garbage.uncollected():
        command = load()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def loaded(place: str) -> Any:
    """What `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
