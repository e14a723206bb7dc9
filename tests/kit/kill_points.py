"""Kills a command (SIGKILL) at each begin and each end of some functions.

    for point in kill_at_each_point(folder, ("agent_service.archive.restoring:_load",), "restore", place):
        ...                     # killed at the first point, then at the second, and so on: what has it left?

Each function counts once at its begin and once at its end. A process that has loaded everything forks for each kill.
"""

import importlib
import inspect
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from agent_service.cli.main import main


def kill_at_each_point(folder: Path, functions: Sequence[str], *arguments: str | Path) -> Iterator[int]:
    """Yields the number of each point after a kill there, until the command ends before the point.

    `functions` are `module:function` or `module:Class.method`. The command's output is in `folder`.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__, "agent_service.cli.store"])
    for point in count(1):
        told = folder / "killed.log", functions, point, [*map(str, arguments)]
        process = forks.Process(target=_run_until_point, args=told)
        process.start()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break
        yield point
    assert process.exitcode == 0, (folder / "killed.log").read_text()
    assert point > 1, "there is no point to strike at"


def _run_until_point(log: Path, functions: Sequence[str], point: int, arguments: list[str]) -> None:
    with log.open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    codes, passed = {*map(_code, functions)}, set()

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
    main(arguments)


def _code(function: str) -> CodeType:
    module, _, name = function.partition(":")
    code: CodeType = inspect.unwrap(reduce(getattr, name.split("."), importlib.import_module(module))).__code__  # type: ignore[arg-type]
    return code
