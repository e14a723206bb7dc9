"""Errors as the commands tell them: one message, and an exit code. What no rule here knows stays an exception."""

from agent_service.cli.exits import Exit
from groundwork.service.errors import Failure, TryAgain, Unreachable, causes


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
    """How to tell `error`, which may be a group of several; None when one of them is not known."""
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
