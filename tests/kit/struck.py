"""A command that is killed (SIGKILL) at a point that it passes: where one of some functions begins, or leaves off.

    with struck(folder, "groundwork.backup.files:set_aside") as command:
        for point in command.strikes("restore", place):    # killed at the first point, at the second, until it is not
            ...                                            # what has it left?

Each function counts once as begun and once as left. A process that has loaded everything forks for each strike.
"""

import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


class Struck:
    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def strikes(self, *arguments: str | Path) -> Iterator[int]:
        """The number of each point, once the command was killed there; until it ends in good order before it."""
        point = 1
        while (code := self.run(*arguments, point=point)) == -signal.SIGKILL:
            yield point
            point += 1
        assert code == 0, f"it ended with {code}"
        assert point > 1, "there is no point to strike at"

    def run(self, *arguments: str | Path, point: int | None = None) -> int:
        """Its exit code, negative for a signal."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([point, [str(argument) for argument in arguments]]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


@contextmanager
def struck(folder: Path, *functions: str) -> Iterator[Struck]:
    """`functions` as `module:function` or `module:Class.method`. What the commands say is in `folder`."""
    command = [sys.executable, "-m", "tests.kit.struck", *functions]
    with (folder / "struck.log").open("a") as log:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with server:
        try:
            yield Struck(server)
        finally:
            server.kill()


def _serve(functions: Sequence[str]) -> None:
    importlib.import_module("agent_service.cli.main")
    commands = importlib.import_module("agent_service.cli.commands").Agentic.table
    codes = {_code(function) for function in functions}
    for line in sys.stdin:
        point, arguments = json.loads(line)
        importlib.import_module(commands[arguments[0]].module)
        if (child := os.fork()) == 0:
            _call(arguments, point, codes)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _code(function: str) -> CodeType:
    module, _, name = function.partition(":")
    code: CodeType = inspect.unwrap(reduce(getattr, name.split("."), importlib.import_module(module))).__code__  # type: ignore[arg-type]
    return code


def _call(arguments: list[str], point: int | None, codes: Collection[CodeType]) -> None:
    os.dup2(2, 1)
    if point is not None:
        _dies_at(point, codes)
    sys.modules["agent_service.cli.main"].main(arguments)


def _dies_at(point: int, codes: Collection[CodeType]) -> None:
    passed = set()

    def passes(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in codes:
            return None
        if event in ("call", "return"):
            passed.add((event, frame.f_code))
            if len(passed) == point:
                os.kill(os.getpid(), signal.SIGKILL)
        return passes

    threading.settrace(passes)  # unlike a profile it is not told of every function in C
    sys.settrace(passes)


if __name__ == "__main__":
    _serve(sys.argv[1:])
