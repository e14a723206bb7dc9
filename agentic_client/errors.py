"""What can go wrong with a call, by what to do about it. Each says what happened, to which run, and what to do now."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any


class AgenticError(Exception):
    """The base of all errors here. `status`: of HTTP (the bus uses the same), 0 for no answer. `code`: for programs.
    `field`, `fields`: what has to change in the request. `run_id`: the run it is about."""

    status: int = 0
    code: str = ""
    field: str | None = None
    fields: Mapping[str, str] = MappingProxyType({})
    run_id: str | None = None

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        vars(self).update(facts)


class TryAgain(AgenticError):
    """Nothing was done. The same call may be made again later; the client has done so for as long as its patience."""

    retry_after_s: float | None = None
    silent_s = 0.0
    """How long it took to come, which counts as patience."""


class Unreachable(TryAgain):
    """No answer, or not in time. The request may have been heard: repeat it as it is."""


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
    """The error that a problem (RFC 9457) is, or another answer of that status."""
    told: dict[str, Any] = body if isinstance(body, dict) else {}
    first: dict[str, Any] = error if isinstance(error := told.get("error"), dict) else {}
    flaws = [flaw for flaw in told.get("errors") or () if isinstance(flaw, dict)]
    fields = {str(flaw.get("field")): str(flaw.get("message")) for flaw in flaws}
    kind = _BY_STATUS.get(status, Broken if status >= 500 else AgenticError)
    text = str(told.get("detail") or first.get("message") or f"the agent answered {status}")
    known = {name: first.get(name) for name in ("field", "run_id")}
    found = kind(text, status=status, code=first.get("code") or "", fields=fields, **known)
    if isinstance(found, TryAgain):
        with suppress(ValueError):  # a date, which a proxy may send
            found.retry_after_s = float(retry_after) if retry_after else None
    return found
