"""Errors of calls, by what the caller can do about them. A message says what happened, to which run, and what to do."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any


class AgenticError(Exception):
    """Base of all errors. `status` is that of HTTP (also on the bus), 0 without an answer; `code` is for programs.
    `field` and `fields` name what must change in the request."""

    status: int = 0
    code: str = ""
    field: str | None = None
    fields: Mapping[str, str] = MappingProxyType({})
    run_id: str | None = None

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        vars(self).update(facts)


class TryAgain(AgenticError):
    """Nothing was done. The client has retried for `patience_s`; the same call may be made again later."""

    retry_after_s: float | None = None
    silent_s = 0.0
    """Seconds until the error came, which count as patience."""


class Unreachable(TryAgain):
    """No answer, or not in time. The agent may have got the request: repeat it unchanged."""


class NotNow(TryAgain):
    """The agent is full or paused, or a quota is used up. `retry_after_s` is set if the agent says when to retry."""


class NotAllowed(AgenticError):
    """The token, or the login on the bus, is unknown or lacks the permission: use another one."""


class NotFound(AgenticError):
    """There is no such run or file."""


class Gone(AgenticError):
    """The run existed; a retention rule has deleted it."""


class Conflict(AgenticError):
    """The run's state does not allow the call: look at the run and decide anew."""


class Invalid(AgenticError):
    """The request is invalid: correct what `field` and `fields` name."""


class Broken(AgenticError):
    """The agent failed at the request, or something else answers there: see its log, and check the address."""


class StillRunning(AgenticError, TimeoutError):
    """The run has not ended within the given time. It goes on; wait again at any time."""


_BY_STATUS: Mapping[int, type[AgenticError]] = {
    400: Invalid, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 408: NotNow, 409: Conflict, 410: Gone, 413: Invalid,
    415: Invalid, 422: Invalid, 429: NotNow, 502: Unreachable, 503: NotNow, 504: Unreachable,
}  # fmt: skip


def refused(status: int, body: Mapping[str, Any] | None, *, retry_after: str | None = None) -> AgenticError:
    """Returns the error for a problem document (RFC 9457) or another answer with that status."""
    problem = body or {}
    first: dict[str, Any] = error if isinstance(error := problem.get("error"), dict) else {}
    listed = problem.get("errors")
    flaws = [flaw for flaw in listed if isinstance(flaw, dict)] if isinstance(listed, list) else []
    fields = {str(flaw.get("field")): str(flaw.get("message")) for flaw in flaws}
    kind = _BY_STATUS.get(status, Broken if status >= 500 else AgenticError)
    text = str(problem.get("detail") or first.get("message") or f"the agent answered {status}")
    known = {name: first.get(name) for name in ("field", "run_id")}
    found = kind(text, status=status, code=first.get("code") or "", fields=fields, **known)
    if isinstance(found, TryAgain):
        with suppress(ValueError):  # a date, which a proxy may send
            found.retry_after_s = float(retry_after) if retry_after else None
    return found
