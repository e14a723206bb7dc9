"""Errors of both services, named by the remedy, and their form on the command line: exit code and one line, or JSON.
Each text says what happened and what to do now.

TryAgain        not done for now, and nothing is lost: repeat it later
  NoRoom        a store is full until a person makes room
GiveUp          this one message or request can never succeed: the others go on
Fatal           this process cannot go on
  Broken        something failed beneath it (a disk): restart the process, which resumes its work
    Unreachable nothing answers at the address: start the server, then the process
  Misconfigured a person has to correct a setting, a permission, a stream or a file first
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from enum import IntEnum
from errno import EDQUOT, ENOSPC
from typing import TypeVar

T = TypeVar("T")


class Failure(Exception): ...


class TryAgain(Failure):
    """`delay_s`: seconds to wait before another attempt."""

    def __init__(self, message: str, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class NoRoom(TryAgain): ...


class GiveUp(Failure): ...


class NameTaken(GiveUp): ...


class Fatal(Failure): ...


class Broken(Fatal): ...


class Unreachable(Broken): ...


class Misconfigured(Fatal): ...


async def patiently(work: Callable[[], Awaitable[T]], pause_s: float | None = None) -> T:
    """Repeats `work` until it raises no TryAgain, with pauses of `pause_s`, or of the error's delay."""
    while True:
        try:
            return await work()
        except TryAgain as error:
            await asyncio.sleep(pause_s or error.delay_s)


@asynccontextmanager
async def in_time(who: str, within_s: float) -> AsyncIterator[None]:
    """Raises TryAgain after so many seconds, as `who` did not answer; another TimeoutError stays what it is."""
    try:
        async with asyncio.timeout(within_s) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TryAgain(f"{who} did not answer within {within_s:g} s") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or the leaves of an exception group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from causes(one)
    else:
        yield error


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """The run failed, a check found a fault, or there is a bug."""
    USAGE = 2
    ESCALATED = 3
    """The run escalated, or pauses for a person."""
    CANCELLED = 4
    NOT_FOUND = 5
    REFUSED = 6
    UNREACHABLE = 69
    """No agent or no bus answers (EX_UNAVAILABLE of sysexits.h)."""
    TRY_AGAIN = 75
    """Nothing was done: repeat it later (EX_TEMPFAIL)."""
    MISCONFIGURED = 78
    """A setting, a file or the environment has to be changed first (EX_CONFIG)."""
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class NotDone(Exception):
    """A command failed. `facts`: fields of the agent's error."""

    def __init__(self, message: str, exit_code: Exit, facts: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.facts = facts or {}

    def for_programs(self) -> dict[str, dict[str, str | int]]:
        """An error of the HTTP API, with the exit code."""
        code = self.exit_code.name.lower()
        return {"error": {"code": code, **self.facts, "message": str(self), "exit_code": int(self.exit_code)}}


def complaint_of(error: BaseException) -> NotDone | None:
    """None if the error, or one of a group, is unknown."""
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
            codes = {Unreachable: Exit.UNREACHABLE, Broken: Exit.FAILED, TryAgain: Exit.TRY_AGAIN}
            code = next((code for kind, code in codes.items() if isinstance(error, kind)), Exit.MISCONFIGURED)
            return NotDone(str(error), code)
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            if error.errno in (ENOSPC, EDQUOT):  # no setting is wrong, so a service is started again
                return NotDone(f"{place}{reason}: make room on the disk", Exit.FAILED)
            is_barred = error.filename and isinstance(error, PermissionError)
            remedy = ": run this as the user that it belongs to" if is_barred else ""
            return NotDone(f"{place}{reason}{remedy}", Exit.MISCONFIGURED)
    return None


_PLAIN_WORDS = {
    r"Value error, ": "",
    r"Input should be a valid (tuple|list|set|frozenset)": 'must be a list, as in ["a", "b"]',
    r"Input should be a valid dictionary.*": "must be settings, as `key: value` lines",
    r"Input is not a valid path.*": "must be a path, as text",
    r"(Input should be a valid string|input was not a valid JSON value).*": "must be text, in quotes",
    r"Input should be a valid boolean.*": "must be true or false",
    r"(Input should be a valid|Unable to parse input string as an) integer.*": "must be a whole number",
    r"Input should be a (valid|finite) number.*": "must be a number",
    r"Input should be greater than or equal to": "must be at least",
    r"Input should be less than or equal to": "must be at most",
    r"String should match pattern ": "must be written as ",
    r"\b[A-Z][a-z]+ should ": "must ",
    r" after validation, not \w+": "",
}


def plain_words(message: str) -> str:
    """A message with pydantic's text on a wrong value, in words for operators."""
    for pattern, words in _PLAIN_WORDS.items():
        message = re.sub(pattern, words, message, count=1)
    return message
