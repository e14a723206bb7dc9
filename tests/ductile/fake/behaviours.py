"""Behaviours of plugin commands: functions from an execution to its outcome.

Each attempt has its own thread, so a behaviour may block.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.ductile.probe.run import DEEDS, EXITS, ON_STDERR, answer
from tests.ductile.under_test import Execution


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one spawn. ends: forced status of the job, or None if stdout decides. never_again: exit code 78, which
    rules out further attempts."""

    stdout: bytes = b""
    stderr: str = ""
    ends: str | None = None
    never_again: bool = False
    last_error: str | None = None


Behaviour = Callable[[Execution], Outcome]
TIMED_OUT = Outcome(ends="timed_out", last_error="execution timed out")
"""Retried, and finally `timed_out`."""
DEAD = Outcome(ends="dead", last_error="Job marked dead during crash recovery: max attempts (4) reached")
SKIPPED = Outcome(b'{"status": "skipped", "reason": "if: false"}', ends="skipped")
"""A step whose condition is not met."""
ROUTING_FAILED = Outcome(b'{"status": "ok", "result": "done"}', ends="failed", last_error="route events: no such path")
"""The plugin succeeded, and routing its events failed: `failed` with an ok result."""


def answers(result: str = "done", **fields: Any) -> Behaviour:
    return lambda _: Outcome(json.dumps({"status": "ok", "result": result} | fields).encode())


def fails(error: str = "it failed", **fields: Any) -> Behaviour:
    """Answers with an error. Only `retry=False` prevents a retry."""
    return lambda _: Outcome(json.dumps({"status": "error", "error": error} | fields).encode())


def held(release: threading.Event) -> Behaviour:
    def wait(execution: Execution) -> Outcome:
        release.wait(30)
        return answers()(execution)

    return wait


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One behaviour per attempt; the last one repeats."""
    remaining: Iterator[Behaviour] = iter(behaviours[:-1])

    def take_turn(execution: Execution) -> Outcome:
        behaviour = next(remaining, behaviours[-1])
        return behaviour(execution)

    return take_turn


def probe(execution: Execution) -> Outcome:
    """The behaviour of tests/ductile/probe, without waiting for a `hang`."""
    do = execution.payload.get("do", "answer")
    if do == "hang":
        return TIMED_OUT
    stdout = DEEDS.get(do, answer)(execution.payload).encode()
    return Outcome(stdout, stderr=ON_STDERR.get(do, ""), never_again=do in EXITS)
