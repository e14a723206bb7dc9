"""The job of all runtimes, and the loop that gives them orders. Standard library only, because it runs in their
environments.

A run has five steps. Each is a decision, durable before it is acted upon, and a writing tool, whose result is
durable before the next decision. A last decision ends the run. Deciding takes no time: it is a script. A runtime is
a process that reads orders from its standard input and answers each with a line, both JSON.
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
    """Returns the next write after that many steps, or the end."""
    if step == STEPS:
        return {"verdict": "done"}
    return {"verdict": "continue", "tool": "write", "arguments": {"line": f"step {step + 1}"}}


def write(folder: Path, run: str, line: str) -> str:
    """The tool: appends a line to a file. Only its caller can prevent a second write."""
    with (folder / WRITES).open("a") as file:
        file.write(f"{run} {line}\n")
    return "written"


class Runtime(Protocol):
    async def run(self, name: str) -> None:
        """Starts a run of that name durably and waits for its end."""

    async def go_on(self, name: str) -> bool:
        """Returns True once a run from before the crash has ended. A run that was not durable yet is started again,
        as a caller without an answer would."""


async def serve(runtime: Runtime, times_written: Callable[[], Counter[str]]) -> None:
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
    return Counter((folder / WRITES).read_text().splitlines())


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 # the answer to an order
