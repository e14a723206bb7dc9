"""What can go wrong with a call, by what to do about it. Each says what happened, to which run, and what to do now."""

from collections.abc import Mapping
from typing import Any


class AgenticError(Exception):
    """The base of all errors here. `status`: of HTTP (the bus uses the same), 0 for no answer. `code`: for programs.
    `field`, `fields`: what has to change in the request. `run_id`: the run it is about."""

    def __init__(self, message: str, *, status: int = 0, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        told = facts or {}
        self.status = status
        self.code: str = told.get("code") or ""
        self.field: str | None = told.get("field")
        self.run_id: str | None = told.get("run_id")
        self.fields: Mapping[str, str] = told.get("fields") or {}


class TryAgain(AgenticError):
    """Nothing was done. The same call may be made again later; the client has done so for as long as its patience."""

    retry_after_s: float | None = None


class Unreachable(TryAgain):
    """No answer, or not in time. The request may have been heard: repeat it as it is. `silent_s`: counts as
    patience."""

    def __init__(
        self, message: str, *, status: int = 0, facts: Mapping[str, Any] | None = None, silent_s: float = 0.0
    ) -> None:
        super().__init__(message, status=status, facts=facts)
        self.silent_s = silent_s


class NotNow(TryAgain):
    """The agent has no room now, stands still, or a quota is used up. `retry_after_s` says when, if it does."""


class NotAllowed(AgenticError):
    """The token, or the login on the bus, is unknown or may not do this: give another one."""


class NotFound(AgenticError):
    """There is no such run or file."""


class Gone(AgenticError):
    """There was such a run: a rule of retention has let it go."""


class Conflict(AgenticError):
    """The run stands otherwise than the call takes for granted: look at it, and decide anew."""


class Invalid(AgenticError):
    """The request cannot be taken as it is: mend what `field` and `fields` name."""


class Broken(AgenticError):
    """The agent failed at the request, or what answers there is no agent: see its log, and the address."""


class StillRunning(AgenticError, TimeoutError):
    """The run has not ended within the time that was given to wait. It goes on; wait again whenever you like."""


_BY_STATUS: Mapping[int, type[AgenticError]] = {
    400: Invalid, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 408: NotNow, 409: Conflict, 410: Gone, 413: Invalid,
    415: Invalid, 422: Invalid, 429: NotNow, 502: Unreachable, 503: NotNow, 504: Unreachable,
}  # fmt: skip


def refused(status: int, body: object, *, retry_after: str | None = None) -> AgenticError:
    told = body if isinstance(body, dict) else {}
    error = told.get("error")
    facts = dict(error) if isinstance(error, dict) else {}
    flaws = told.get("errors")
    named = [flaw for flaw in flaws if isinstance(flaw, dict)] if isinstance(flaws, list) else []
    facts["fields"] = {str(flaw.get("field")): str(flaw.get("message")) for flaw in named}
    message = facts.get("message") or told.get("detail") or told.get("title") or f"the agent answered {status}"
    kind = _BY_STATUS.get(status, Broken if status >= 500 else AgenticError)
    found = kind(str(message), status=status, facts=facts)
    if isinstance(found, TryAgain):
        found.retry_after_s = _seconds(retry_after)
    return found


def closed() -> AgenticError:
    return AgenticError("this client is closed: make another one, or call it before its `with` ends")


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:  # a date, which a proxy may send
        return None
