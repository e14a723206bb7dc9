"""What a plugin command does when it runs: a function from one execution to its outcome.

A behaviour is called in a thread of its own, once for each attempt, so it may block.
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
    """How one spawn ended.

    ends: the status that the job gets whatever the rest says, or None where stdout decides.
    never_again: the process exited with 78, which rules out further attempts.
    """

    stdout: bytes = b""
    stderr: str = ""
    ends: str | None = None
    never_again: bool = False
    last_error: str | None = None


Behaviour = Callable[[Execution], Outcome]
TIMED_OUT = Outcome(ends="timed_out", last_error="execution timed out")
"""It ran into its deadline. Tried again, and `timed_out` in the end."""
DEAD = Outcome(ends="dead", last_error="Job marked dead during crash recovery: max attempts (4) reached")
"""Given up by crash recovery, without a result."""
SKIPPED = Outcome(b'{"status": "skipped", "reason": "if: false"}', ends="skipped")
"""A step whose condition was not met."""
ROUTING_FAILED = Outcome(b'{"status": "ok", "result": "done"}', ends="failed", last_error="route events: no such path")
"""The plugin succeeded, what Ductile did with its events did not: `failed` with a result that is ok."""


def answers(result: str = "done", **fields: Any) -> Behaviour:
    """Succeeds with this text; further fields (output, artifacts, events …) come back verbatim."""
    return lambda _: Outcome(json.dumps({"status": "ok", "result": result} | fields).encode())


def fails(error: str = "it failed", **fields: Any) -> Behaviour:
    """Answers with an error. Of its fields only `retry=False` keeps Ductile from trying again."""
    return lambda _: Outcome(json.dumps({"status": "error", "error": error} | fields).encode())


def held(release: threading.Event) -> Behaviour:
    """Runs until `release` is set, then succeeds."""

    def wait(execution: Execution) -> Outcome:
        release.wait(30)
        return answers()(execution)

    return wait


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first time the first, and so on; the last one from then on."""
    remaining: Iterator[Behaviour] = iter(behaviours[:-1])

    def take_turn(execution: Execution) -> Outcome:
        behaviour = next(remaining, behaviours[-1])
        return behaviour(execution)

    return take_turn


def probe(execution: Execution) -> Outcome:
    """What tests/ductile/probe does under a real Ductile, but that a `hang` is not waited for."""
    do = execution.payload.get("do", "answer")
    if do == "hang":
        return TIMED_OUT
    stdout = DEEDS.get(do, answer)(execution.payload).encode()
    return Outcome(stdout, stderr=ON_STDERR.get(do, ""), never_again=do in EXITS)
