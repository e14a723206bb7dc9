"""Start of a program (garbage collection, Ctrl-C during imports), and the installed version, commands and files.

With Python's defaults the garbage collector took an eighth of a busy service's CPU.
"""

import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import groundwork
from groundwork.service.errors import Exit, Misconfigured

NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS = 50_000, 50, 100


def collect_seldom() -> None:
    """Collects cyclic garbage rarely, and never looks at objects that exist now (modules, models)."""
    gc.freeze()
    gc.set_threshold(NEW_VALUES, YOUNG_ROUNDS, MIDDLE_ROUNDS)


def run(main: str, serve: str) -> None:
    """Calls `main`, or `serve` for the commands `serve` and `serve --config FILE` (both are `module:name`). Ctrl-C ends
    the process without a traceback, also during imports. Raises SystemExit."""
    _open_standard_streams()
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # loading modules makes no garbage, and collection took an eighth of its time
    try:
        command = command_of(main, serve, sys.argv[1:])
        gc.enable()
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _open_standard_streams() -> None:
    """Opens the closed ones on nothing: else the next file or connection gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 # open until the process ends


def command_of(main: str, serve: str, arguments: Sequence[str]) -> Callable[[], None]:
    """The service starts without the modules of other commands (help, drawings, an HTTP client), which take 0.1 s to
    import: it may have been killed with work in hand."""
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
            loaded(main)(arguments)  # reports the error as all commands do

    return service


def loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


DISTRIBUTION = "agentic-loop-nats"


@cache
def installed_version() -> str:
    """0.0.0 in a checkout: a NATS micro service needs a number."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0.0.0"


def invocation(name: str, module: str) -> str:
    """Command line for examples to copy: the name if it is on the PATH, else its script, else its module."""
    beside = Path(sys.executable).with_name(name)
    if shutil.which(name):
        return name
    if beside.is_file():
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(sys.executable)} -m {module}"


def own_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module of ours by this Python, whatever the current folder holds."""
    return [sys.executable, "-P", "-m", module, *arguments]


def shipped(*parts: str) -> Path:
    """Installed copy of a file or folder of the repository: `shipped("deploy", "agentic.yaml")`."""
    package = Path(groundwork.__file__).resolve().parent
    in_wheel = package / "shipped"
    return (in_wheel if in_wheel.is_dir() else package.parent).joinpath(*parts)
