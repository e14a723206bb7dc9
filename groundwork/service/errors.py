"""The errors of both services, named by what to do about them; and how commands tell them: exit code and one line, or
JSON. Each text says what happened and what to do now.

TryAgain        not done for now, and nothing is lost: the same again, later
  NoRoom        the place is full until a person makes room
GiveUp          this one message or request can never succeed: the others go on
Fatal           this process cannot go on
  Broken        something failed beneath it (a disk): restart the process, which resumes what was under way
    Unreachable nothing answers at the address: start what should be there, then the process
  Misconfigured nothing works before a person mends a setting, a permission, a stream or a file
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")


class Failure(Exception): ...


class TryAgain(Failure):
    """`delay_s` is a good time to wait, in seconds."""

    def __init__(self, message: str, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class NoRoom(TryAgain): ...


class GiveUp(Failure): ...


class Fatal(Failure): ...


class Broken(Fatal): ...


class Unreachable(Broken): ...


class Misconfigured(Fatal): ...


async def patiently(work: Callable[[], Awaitable[T]], pause_s: float | None = None) -> T:
    """Does it until it raises no TryAgain, which says itself how long to wait, or `pause_s` does."""
    while True:
        try:
            return await work()
        except TryAgain as error:
            await asyncio.sleep(pause_s or error.delay_s)


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, or those that its groups hold."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from causes(one)
    else:
        yield error


class Exit(IntEnum):
    """0 is success; a run that ended otherwise and a command that failed have codes of their own."""

    OK = 0
    FAILED = 1
    """The run failed, a check found something wrong, or there is a fault of our own."""
    USAGE = 2
    ESCALATED = 3
    """The run escalated, or pauses for a person."""
    CANCELLED = 4
    NOT_FOUND = 5
    REFUSED = 6
    UNREACHABLE = 69
    """No agent or no bus answers (EX_UNAVAILABLE of sysexits.h)."""
    TRY_AGAIN = 75
    """Nothing was done for now: the same again, later (EX_TEMPFAIL)."""
    MISCONFIGURED = 78
    """A setting, a file or the environment has to be changed first (EX_CONFIG)."""
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class ClosedPipe(Exception):
    """The reader of standard output is gone."""


class NotDone(Exception):
    """It was not done; `exit_code` says what kind of no it was. `facts`: what the agent's error said, by its names."""

    def __init__(self, message: str, exit_code: Exit, facts: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.facts = facts or {}

    def for_programs(self) -> dict[str, dict[str, str | int]]:
        """In the form of the HTTP API's errors, with the exit code."""
        code = self.exit_code.name.lower()
        return {"error": {"code": code, **self.facts, "message": str(self), "exit_code": int(self.exit_code)}}


def complaint_of(error: BaseException) -> NotDone | None:
    """Returns None when an error, or one of a group, is not known."""
    complaints = [_complaint(cause) for cause in causes(error)]
    known = [complaint for complaint in complaints if complaint]
    if not known or len(known) < len(complaints):
        return None
    return NotDone("; ".join(dict.fromkeys(map(str, known))), known[0].exit_code, known[0].facts)


def _complaint(error: BaseException) -> NotDone | None:
    match error:
        case NotDone():
            return error
        case Failure():
            codes = {Unreachable: Exit.UNREACHABLE, TryAgain: Exit.TRY_AGAIN}
            code = next((code for kind, code in codes.items() if isinstance(error, kind)), Exit.MISCONFIGURED)
            return NotDone(str(error), code)
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            return NotDone(f"{place}{reason}", Exit.MISCONFIGURED)
    return None
