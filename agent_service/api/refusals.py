"""Why a caller's request is not served: one way to say it, whatever the request came over.

`status` is an HTTP status; the bus uses the same numbers. A message never repeats what was sent.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

from agent_service.api.problems import TITLES, Code, ErrorDetail, FieldError, Gone, Problem, kind
from agent_service.core.limits import LimitRefused
from agent_service.errors import Damaged, OverQuota, Stopped, WakeConflict
from groundwork.service.errors import Fatal, TryAgain
from groundwork.service.strict_json import NotStrictJson

BROKEN_RETRY_S = 30.0
STOPPED_RETRY_S = 30.0


class Refusal(Exception):
    """Not served. `code` is for programs, the message for people; `field` names what has to change in the request.

    `errors` names all that has to change, where there is more than one thing.
    """

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        *,
        field: str | None = None,
        run_id: str | None = None,
        retry_after_s: float | None = None,
        errors: Sequence[FieldError] = (),
        gone: Gone | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field
        self.run_id = run_id
        self.retry_after_s = retry_after_s
        self.gone = gone
        self.errors = tuple(errors) or ((FieldError(field=field, message=message, code=code),) if field else ())

    @cached_property
    def instance(self) -> str:
        return uuid4().urn

    def body(self) -> dict[str, Any]:
        first = ErrorDetail(code=self.code, message=str(self), field=self.field, run_id=self.run_id)
        told = Problem(
            type=kind(self.code),
            title=TITLES[self.code],
            status=self.status,
            detail=str(self)
            if len(self.errors) < 2
            else "; ".join(f"{one.field}: {one.message}" for one in self.errors),
            instance=self.instance,
            code=self.code,
            run_id=self.run_id,
            gone=self.gone,
            errors=self.errors,
            error=first,
        )
        return told.model_dump(mode="json", exclude_none=True)


class SeenToTheEnd(Exception):
    """The reader has seen the whole run: there is nothing to follow any more."""


REFUSED = (Refusal, NotStrictJson, LimitRefused, WakeConflict, Damaged, TryAgain, Fatal)


def broken() -> Refusal:
    return Refusal(500, "broken", "the agent failed at this request; its log says how")


def refusal_of(error: Exception) -> Refusal:
    """What a caller is told of `error`. Raises it again when it is none of REFUSED."""
    match error:
        case Refusal():
            return error
        case NotStrictJson():
            return Refusal(400, "not_json", f"the body {error}")
        case LimitRefused():
            return Refusal(422, "not_granted", str(error), field=error.field)
        case WakeConflict():
            return Refusal(409, "wake_id_taken", str(error), field="wake_id", run_id=error.run_id)
        case Damaged():
            return Refusal(500, "damaged", str(error), run_id=error.run_id)
        case TryAgain():
            return _later(error)
        case Fatal():
            message = "the agent cannot work before a person mends it: ask again later, with the same wake_id"
            return Refusal(503, "broken", message, retry_after_s=BROKEN_RETRY_S)
    raise error


def _later(error: TryAgain) -> Refusal:
    told = f"not done, and nothing was stored: {error}"
    if isinstance(error, Stopped):
        then = "a person lets it go on with `agentic go-on`"
        return Refusal(503, "stopped", f"{told}; {then}", retry_after_s=STOPPED_RETRY_S)
    if isinstance(error, OverQuota):
        return Refusal(429, "over_quota", told, retry_after_s=error.delay_s)
    return Refusal(503, "try_again", told, retry_after_s=error.delay_s)
