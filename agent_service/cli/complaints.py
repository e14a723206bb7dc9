"""Errors as the commands tell them: one clear message without a traceback, and an exit code that says what to do.

What no rule here knows is a fault of ours and stays an exception.
"""

from dataclasses import dataclass, field

from agent_service.cli.exits import Exit
from groundwork.service.errors import Failure, TryAgain, Unreachable, causes


class NotDone(Exception):
    """It was not done; `exit_code` says what kind of no it was. `facts`: what the agent's error said, by its names."""

    def __init__(self, message: str, exit_code: Exit, facts: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.facts = facts or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    message: str
    exit_code: Exit
    facts: dict[str, str] = field(default_factory=dict)

    def for_programs(self) -> dict[str, dict[str, str | int]]:
        """In the form of the HTTP API's errors, with the exit code."""
        code = self.exit_code.name.lower()
        return {"error": {"code": code, **self.facts, "message": self.message, "exit_code": int(self.exit_code)}}


def complaint_of(error: BaseException) -> Complaint | None:
    """How to tell `error`, which may be a group of several; None when one of them is not known."""
    complaints = [_complaint(cause) for cause in causes(error)]
    known = [complaint for complaint in complaints if complaint]
    if not known or len(known) < len(complaints):
        return None
    messages = dict.fromkeys(complaint.message for complaint in known)
    return Complaint(message="; ".join(messages), exit_code=known[0].exit_code, facts=known[0].facts)


def _complaint(error: BaseException) -> Complaint | None:
    match error:
        case NotDone():
            return Complaint(message=str(error), exit_code=error.exit_code, facts=error.facts)
        case Unreachable():
            return Complaint(message=str(error), exit_code=Exit.UNREACHABLE)
        case TryAgain():
            return Complaint(message=str(error), exit_code=Exit.TRY_AGAIN)
        case Failure():
            return Complaint(message=str(error), exit_code=Exit.MISCONFIGURED)
        case OSError(strerror=str(reason)):
            place = f"{error.filename}: " if error.filename else ""
            return Complaint(message=f"{place}{reason}", exit_code=Exit.MISCONFIGURED)
    return None
