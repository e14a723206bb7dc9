"""What a plugin command does when it runs: a function from one execution to its outcome.

A behaviour is called in a thread of its own, once for each attempt, so it may block.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.ductile.under_test import Execution

OUTPUT_LIMIT_BYTES = 10 * 1024 * 1024
"""Of stdout. More is an error that is tried again (measured of Ductile)."""


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


def answers(result: str = "done", **fields: Any) -> Behaviour:
    """Succeeds with this text; further fields (output, artifacts, events …) come back verbatim."""
    return lambda _: _printed({"status": "ok", "result": result} | fields)


def fails(error: str = "it failed", *, retry: bool | None = None, exits: int = 0, **fields: Any) -> Behaviour:
    """Answers with an error. Only `retry=False` or exit code 78 keep Ductile from trying again."""
    said = {} if retry is None else {"retry": retry}
    body = json.dumps({"status": "error", "error": error} | said | fields).encode()
    return lambda _: Outcome(body, never_again=exits == 78)


def prints(stdout: bytes, *, stderr: str = "") -> Behaviour:
    """Puts these bytes on stdout: anything but one JSON response is an error that is tried again."""
    return lambda _: Outcome(stdout, stderr=stderr)


def floods() -> Behaviour:
    """Prints more than the 10 MiB that Ductile reads."""
    return prints(b"x" * (OUTPUT_LIMIT_BYTES + 1))


def times_out() -> Behaviour:
    """Runs into its deadline. Tried again, and `timed_out` in the end."""
    return lambda _: Outcome(ends="timed_out", last_error="execution timed out")


def held(release: threading.Event, then: Behaviour | None = None) -> Behaviour:
    """Runs until `release` is set, then does what `then` does (by default: succeeds)."""
    following = then or answers()

    def wait(execution: Execution) -> Outcome:
        release.wait(30)
        return following(execution)

    return wait


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first time the first, and so on; the last one from then on."""
    remaining: Iterator[Behaviour] = iter(behaviours[:-1])

    def take_turn(execution: Execution) -> Outcome:
        behaviour = next(remaining, behaviours[-1])
        return behaviour(execution)

    return take_turn


def succeeds_but_routing_fails(result: str = "done") -> Behaviour:
    """The plugin succeeded, what Ductile did with its events did not: `failed` with a result that is ok."""
    stdout = json.dumps({"status": "ok", "result": result}).encode()
    return lambda _: Outcome(stdout, ends="failed", last_error="route events: no such path")


def skipped(reason: str = "if: false") -> Behaviour:
    """A step whose condition was not met."""
    return lambda _: Outcome(json.dumps({"status": "skipped", "reason": reason}).encode(), ends="skipped")


def dies() -> Behaviour:
    """Given up by crash recovery: `dead`, without a result."""
    return lambda _: Outcome(ends="dead", last_error="Job marked dead during crash recovery: max attempts (4) reached")


def _printed(response: dict[str, Any]) -> Outcome:
    return Outcome(json.dumps(response).encode())
