"""A command that is killed (SIGKILL) at a point that it passes: where one of some functions begins, or leaves off.

    for point in strikes(folder, ("groundwork.archive.series:set_aside",), "restore", place):
        ...                     # killed at the first point, at the second, until it is not: what has it left?

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
from functools import reduce
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


def strikes(folder: Path, functions: Sequence[str], *arguments: str | Path) -> Iterator[int]:
    """The number of each point, once the command was killed there; until it ends in good order before it.

    `functions` as `module:function` or `module:Class.method`. What the command says is in `folder`.
    """
    told = json.dumps([functions, arguments], default=str)
    command = [sys.executable, "-m", "tests.kit.struck", told]
    with (
        (folder / "struck.log").open("a") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        assert server.stdin
        assert server.stdout
        for point in count(1):
            if (code := int(server.stdout.readline())) != -signal.SIGKILL:
                break
            yield point
            server.stdin.write("go on\n")
            server.stdin.flush()
    assert code == 0, f"it ended with {code}"
    assert point > 1, "there is no point to strike at"


def _serve(functions: Sequence[str], arguments: list[str]) -> None:
    main = importlib.import_module("agent_service.cli.main").main
    table = importlib.import_module("agent_service.cli.main").Agentic.table
    importlib.import_module(table[f"store {arguments[0]}"].module)
    codes = {_code(function) for function in functions}
    for point in count(1):
        if (child := os.fork()) == 0:
            os.dup2(2, 1)
            _dies_at(point, codes)
            main(arguments)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return


def _code(function: str) -> CodeType:
    module, _, name = function.partition(":")
    code: CodeType = inspect.unwrap(reduce(getattr, name.split("."), importlib.import_module(module))).__code__  # type: ignore[arg-type]
    return code


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
    _serve(*json.loads(sys.argv[1]))
