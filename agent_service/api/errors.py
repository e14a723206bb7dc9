"""Refusals of requests: problems (RFC 9457) by code, with the same HTTP status over HTTP and on the bus.

A message never repeats what was sent.
"""

import logging
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import Status
from agent_service.errors import Damaged, Leaving, LimitRefused, OverQuota, Stopped, WakeConflict
from groundwork.service.errors import Fatal, TryAgain
from groundwork.service.machine import new_uuid
from groundwork.service.strict import NotStrictJson
from schemas.fields import Instant

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger(__name__)


class Code(StrEnum):
    """The kind of a problem."""

    NOT_JSON = "not_json", 400, "The body is not strict JSON"
    CUT_OFF = "cut_off", 400, "The connection ended within the body"
    UNAUTHORIZED = "unauthorized", 401, "No token of this service was sent"
    FORBIDDEN = "forbidden", 403, "The token lacks the scope that this call needs"
    FOREIGN_ORIGIN = "foreign_origin", 403, "A page of another site asks"
    UNKNOWN_RUN = "unknown_run", 404, "There is no such run"
    UNKNOWN_STEP = "unknown_step", 404, "The run has not taken this step"
    UNKNOWN_CALL = "unknown_call", 404, "The run has not made this model call"
    UNKNOWN_LETTER = "unknown_letter", 404, "There is no such dead letter"
    NO_SUCH_FILE = "no_such_file", 404, "The run has no such file"
    NOT_FOUND = "not_found", 404, "There is nothing at this path"
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "The path takes other methods"
    TOO_SLOW = "too_slow", 408, "The body came too slowly"
    RUN_HAS_ENDED = "run_has_ended", 409, "The run has ended already"
    WAKE_ID_TAKEN = "wake_id_taken", 409, "The wake_id has named another request"
    SIGNAL_ID_TAKEN = "signal_id_taken", 409, "The signal_id has named another signal"
    NOT_HEARD = "not_heard", 409, "The run took no notice"
    NOTHING_TO_DISMISS = "nothing_to_dismiss", 409, "The run does not wait for a person"
    NOT_SENT_AGAIN = "not_sent_again", 409, "The refused message is not sent again"
    ARTIFACT_CHANGED = "artifact_changed", 409, "The artifact is not the one that the journal recorded"
    TOO_LARGE_TO_SEND = "too_large_to_send", 409, "The file is too large to be sent"
    GONE = "gone", 410, "The run was deleted"
    ARTIFACTS_GONE = "artifacts_gone", 410, "The artifacts of the run were deleted"
    TOO_LARGE = "too_large", 413, "The body is too large"
    ENCODED = "encoded", 415, "The body is compressed"
    WRONG_HOST = "wrong_host", 421, "The service does not answer to this Host"
    INVALID = "invalid", 422, "A field does not fit"
    NOT_GRANTED = "not_granted", 422, "More is asked for than is granted"
    CALLBACK_REFUSED = "callback_refused", 422, "Nothing would ever be sent to this callback"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused", 422, "The Idempotency-Key has named another request"
    OVER_QUOTA = "over_quota", 429, "The caller's quota is spent"
    TOO_MANY_STREAMS = "too_many_streams", 429, "Too many event streams are open"
    BROKEN = "broken", 500, "The agent failed at this request"
    DAMAGED = "damaged", 500, "The run cannot be read"
    TRY_AGAIN = "try_again", 503, "Not now: come back later"
    STOPPED = "stopped", 503, "Everything is stopped"
    REFUSED = "refused", 0, "The request is refused"

    status: int
    means: str

    def __new__(cls, code: str, status: int, means: str) -> Self:
        made = str.__new__(cls, code)
        made._value_, made.status, made.means = code, status, means
        return made


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class FieldError(_Frozen):
    """A fault in the request: in a field such as `constraints.max_loops`, or in a header."""

    field: str
    message: str
    code: str = Field(examples=["missing", "extra_forbidden"])


class ErrorDetail(_Frozen):
    """The first fault."""

    code: str
    message: str
    field: str | None = None
    run_id: str | None = None


class Gone(_Frozen):
    """A deleted run, and the setting by which it was deleted."""

    wake_id: str
    status: Status
    ended_at: Instant
    gone_at: Instant
    rule: str


class Problem(_Frozen):
    """A refused request. It repeats nothing that was sent but possible names of fields.

    `code` is for programs, and `type` the same as a URI; `title` names the kind, `detail` says what happened and what
    to do. `instance` identifies this refusal, also in the agent's log. `errors` lists the fields to change (the first
    twenty), `run_id` the run in conflict. `error` is the first fault in short.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: Code
    run_id: str | None = None
    gone: Gone | None = None
    errors: tuple[FieldError, ...] = ()
    error: ErrorDetail


class ApiError(Exception):
    """`status` overrides that of the code. `field` is the field to change; `errors` lists several."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        status: int | None = None,
        field: str | None = None,
        run_id: str | None = None,
        retry_after_s: float | None = None,
        gone: Gone | None = None,
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status or code.status
        self.field = field
        self.run_id = run_id
        self.retry_after_s = retry_after_s
        self.gone = gone
        self.errors = tuple(errors) or (
            (FieldError(field=field, message=message.removeprefix(f"{field}: "), code=code),) if field else ()
        )

    @cached_property
    def instance(self) -> str:
        return new_uuid().urn

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer, over HTTP and on the bus."""
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, round(self.retry_after_s)))}

    def body(self) -> dict[str, Any]:
        every = "; ".join(f"{one.field}: {one.message}" for one in self.errors) if len(self.errors) > 1 else str(self)
        problem = Problem(
            type=f"/docs#{self.code}",
            title=self.code.means,
            status=self.status,
            detail=every,
            instance=self.instance,
            code=self.code,
            run_id=self.run_id,
            gone=self.gone,
            errors=self.errors,
            error=ErrorDetail(code=self.code, message=str(self), field=self.field, run_id=self.run_id),
        )
        return problem.model_dump(mode="json", exclude_none=True)

    def log(self, call: str | None, caller: str | None) -> None:
        facts = {"status": self.status, "code": self.code, "field": self.field, "instance": self.instance}
        level = logging.WARNING if self.status >= 500 else logging.INFO
        log.log(level, "refused", extra=facts | {"call": call, "caller": caller})


REFUSED = (ApiError, NotStrictJson, LimitRefused, WakeConflict, Damaged, TryAgain, Fatal)
RETRY_S = 30.0


def broken() -> ApiError:
    return ApiError(Code.BROKEN, "the agent failed at this request; its log says how")


def refusal_of(error: Exception) -> ApiError:
    """Raises `error` again if it is none of REFUSED."""
    match error:
        case ApiError():
            return error
        case NotStrictJson():
            return ApiError(Code.NOT_JSON, f"the body {error}")
        case LimitRefused():
            return ApiError(Code.NOT_GRANTED, str(error), field=error.field)
        case WakeConflict():
            return ApiError(Code.WAKE_ID_TAKEN, str(error), field="wake_id", run_id=error.run_id)
        case Damaged():
            return ApiError(Code.DAMAGED, str(error), run_id=error.run_id)
        case TryAgain():
            return _not_now(error)
        case Fatal():
            log.error("the agent needs its operator", extra={"why": str(error)})  # callers are not told
            message = "the agent needs its operator: ask again later"
            return ApiError(Code.BROKEN, message, status=503, retry_after_s=RETRY_S)
    raise error


def _not_now(error: TryAgain) -> ApiError:
    message = f"not now: {error}"  # not "nothing is stored", which is not always known
    if isinstance(error, Stopped) and not isinstance(error, Leaving):
        then = "a person lets it go on with `agentic go-on`"
        return ApiError(Code.STOPPED, f"{message}; {then}", retry_after_s=RETRY_S)
    code = Code.OVER_QUOTA if isinstance(error, OverQuota) else Code.TRY_AGAIN
    return ApiError(code, message, retry_after_s=error.delay_s)


def unfit(field: str, why: str, run_id: str | None = None) -> ApiError:
    return ApiError(Code.INVALID, f"{field}: {why}", field=field, run_id=run_id)


IDEMPOTENCY_KEY = "Idempotency-Key"


def named_by(key: str | None, error: Exception, *, made: str = "") -> ApiError:
    """The refusal; a conflict of names is one of the Idempotency-Key, if the name came from `key`. `made`: a name that
    the caller does not know, and needs to ask again for what may be stored."""
    refusal = refusal_of(error)
    if made and refusal.code in (Code.TRY_AGAIN, Code.BROKEN):
        text = f"{refusal}; ask again with the wake_id {made}"
        return ApiError(refusal.code, text, status=refusal.status, retry_after_s=refusal.retry_after_s)
    if key is None or refusal.code not in (Code.SIGNAL_ID_TAKEN, Code.WAKE_ID_TAKEN):
        return refusal
    message = f"{IDEMPOTENCY_KEY}: another request was made under this key: use a new one for a new request"
    return ApiError(Code.IDEMPOTENCY_KEY_REUSED, message, field=IDEMPOTENCY_KEY, run_id=refusal.run_id)
