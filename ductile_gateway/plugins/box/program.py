"""Runs a plugin in Python in a fork of its guard, which has loaded the interpreter and the plugin's standard modules.

The guard executes no code of the plugin: it parses and compiles. A call runs the program from the start, as
`python run.py` does, and reads a file again that has changed since.
"""

import ast
import atexit
import builtins
import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType, ModuleType, TracebackType
from typing import ClassVar, NoReturn

from ductile_gateway.plugins.box.order import MARK
from groundwork.service import process

PRELOADED = sys.stdlib_module_names - {"antigravity", "idlelib", "test", "this", "tkinter", "turtledemo"}
"""Standard modules that a guard may import early. The others do something when they are imported."""

Stamp = tuple[int, int, int, int]


class Program:
    def __init__(self, entrypoint: str) -> None:
        self._entrypoint = entrypoint
        self._folder = os.path.dirname(entrypoint)
        value_of = process.libc().getenv
        value_of.restype = ctypes.c_void_p
        self._marked_at = value_of(MARK.encode())
        """Address of the value that /proc shows in the environment of this process."""
        beside = [f"{self._folder}/{name}" for name in os.listdir(self._folder) if name.endswith(".py")]
        for path in {entrypoint, *beside}:
            with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
                self._read(path)

    def run(self, own: Mapping[str, str]) -> NoReturn:
        """Never returns. `own`: environment variables of the call."""
        os.environ.update(own)
        if self._marked_at:
            ctypes.memmove(self._marked_at, own[MARK].encode(), len(own[MARK]))
        sys.argv[:] = [self._entrypoint]
        sys.path[0] = self._folder
        sys.path_hooks.insert(0, FINDER)
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__dict__.update(__file__=self._entrypoint, __builtins__=builtins)
        os._exit(_exit_code(main))

    def _read(self, path: str) -> None:
        stamp = _stamp(path)
        with open(path, "rb") as file:
            source = file.read()
        tree = ast.parse(source, path)
        _Source.compiled[path] = stamp, compile(tree, path, "exec", dont_inherit=True)
        for name in _standard_modules(tree):
            with contextlib.suppress(Exception):  # the program will find out for itself
                import_module(name)


def _standard_modules(program: ast.Module) -> Iterator[str]:
    """Names of Python's modules that it imports; a name imported from a package may be a module of it, or not."""
    for node in ast.walk(program):
        names = list[str]()
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0):
                names = [module, *(f"{module}.{alias.name}" for alias in node.names if alias.name != "__main__")]
        yield from (name for name in names if name.partition(".")[0] in PRELOADED)


class _Source(SourceFileLoader):
    compiled: ClassVar[dict[str, tuple[Stamp, CodeType]]] = {}

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if path not in self.compiled:
            return super().get_code(fullname)
        stamp, code = self.compiled[path]
        # Python's own cache of compiled sources compares only time and size.
        return code if stamp == _stamp(path) else self.source_to_code(self.get_data(path), path)


FINDER = FileFinder.path_hook(
    (ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES)
)


def _exit_code(main: ModuleType) -> int:
    """Runs the program to its end as the interpreter does, without finalizing the interpreter."""
    code = 0
    try:
        _Source("__main__", str(main.__file__)).exec_module(main)
    except SystemExit as wish:
        code = _wished(wish.code)
    except BaseException as error:  # noqa: BLE001 - the plugin's
        error.__traceback__ = _from(str(main.__file__), error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if threading := sys.modules.get("threading"):
        threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _wished(code: object) -> int:
    if isinstance(code, int):
        return code & 0xFF
    if code is None:
        return 0
    print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def _from(at: str, trace: TracebackType | None) -> TracebackType | None:
    while trace and trace.tb_frame.f_code.co_filename != at:
        trace = trace.tb_next
    return trace


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
