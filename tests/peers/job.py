"""The job that all of them do, and the loop in which each is told to do it. Standard library alone: it runs in theirs.

A run has five steps. Each is a decision, which has to be durable before it is acted upon, and a tool that writes, whose
result has to be durable before the next decision. A last decision ends the run. Deciding takes no time: it is a script.

A runtime is a process that reads orders from its standard input and answers each with a line, both JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

STEPS = 5
WRITES = "writes.txt"


def decide(step: int) -> dict[str, Any]:
    """What the script decides after so many steps: the next write, or the end."""
    if step == STEPS:
        return {"verdict": "done"}
    return {"verdict": "continue", "tool": "write", "arguments": {"line": f"step {step + 1}"}}


def write(folder: Path, run: str, line: str) -> str:
    """The tool: one line more in a file. Nothing keeps it from being written twice but who calls it."""
    with (folder / WRITES).open("a") as file:
        file.write(f"{run} {line}\n")
    return "written"


class Runtime(Protocol):
    async def run(self, name: str) -> None:
        """Begin a run of that name, durably, and wait until it has ended."""

    async def go_on(self, name: str) -> bool:
        """After a crash: whether a run that was asked for before has ended at last. One that had not come as far as to
        be known is asked for again, as a caller would who heard nothing of it."""


async def serve(runtime: Runtime, times_written: Callable[[], Counter[str]]) -> None:
    """Do what is ordered until there are no more orders."""
    _say({"ready": True})
    while order := await asyncio.to_thread(sys.stdin.readline):
        what = json.loads(order)
        names = [f"{what['prefix']}-{number}" for number in range(what["number"])]
        if what["do"] == "run":
            _say(await _run(runtime, names, what["at_a_time"]))
        else:
            ended = [await runtime.go_on(name) for name in names]
            _say({"ended": sum(ended), "twice": sum(times - 1 for times in times_written().values())})


async def _run(runtime: Runtime, names: Sequence[str], at_a_time: int) -> dict[str, Any]:
    waiting, run_s = iter(names), list[float]()

    async def one_after_another() -> None:
        for name in waiting:
            began = time.perf_counter()
            await runtime.run(name)
            run_s.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(one_after_another())
    return {"seconds": time.perf_counter() - began, "run_s": run_s}


def times_written(folder: Path) -> Counter[str]:
    """How often each write was made."""
    return Counter((folder / WRITES).read_text().splitlines())


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 # the answer to an order
