"""Exit codes for scripts, and errors as programs tell them: one line each, or JSON. Unknown errors stay exceptions."""

from enum import IntEnum

from groundwork.service import beginning
from groundwork.service.errors import Failure, TryAgain, Unreachable, causes


class Exit(IntEnum):
    """0 is success; a run that ended otherwise and a command that failed have codes of their own."""

    OK = 0
    FAILED = 1
    """The run failed, a check found something wrong, or there is a fault of our own."""
    USAGE = 2
    """The command line is wrong."""
    ESCALATED = 3
    """The run escalated, or pauses for a person."""
    CANCELLED = 4
    NOT_FOUND = 5
    """There is no such run, or no such dead letter."""
    REFUSED = 6
    """The agent refused the request; the message says why."""
    UNREACHABLE = 69
    """No agent or no bus answers (EX_UNAVAILABLE of sysexits.h)."""
    TRY_AGAIN = 75
    """Nothing was done for now: the same again, later (EX_TEMPFAIL)."""
    MISCONFIGURED = 78
    """A setting, a file or the environment has to be changed first (EX_CONFIG)."""
    INTERRUPTED = beginning.INTERRUPTED
    """Left with Ctrl-C."""
    CLOSED_PIPE = 141
    """Whoever read the output went away, as `head` does."""


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
        case Unreachable():
            return NotDone(str(error), Exit.UNREACHABLE)
        case TryAgain():
            return NotDone(str(error), Exit.TRY_AGAIN)
        case Failure():
            return NotDone(str(error), Exit.MISCONFIGURED)
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            return NotDone(f"{place}{reason}", Exit.MISCONFIGURED)
    return None


class ClosedPipe(Exception):
    """The reader of standard output is gone."""
