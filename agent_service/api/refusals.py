"""Why a request is not served: problems by code (RFC 9457), the same over HTTP and over the bus.

`status` is an HTTP status on the bus too. A message never repeats what was sent.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from agent_service.admission.granting import LimitRefused
from agent_service.archive.retention import Tombstone
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, OverQuota, Stopped, WakeConflict
from agent_service.run.journal import Run
from agent_service.run.ports import RunStore
from groundwork.service.errors import Fatal, TryAgain
from groundwork.service.machine import new_uuid
from groundwork.service.strict import NotStrictJson
from schemas.fields import Instant

MEDIA_TYPE = "application/problem+json"

Code = Literal[
    "artifact_changed",
    "artifacts_gone",
    "broken",
    "callback_refused",
    "cut_off",
    "damaged",
    "encoded",
    "forbidden",
    "foreign_origin",
    "gone",
    "idempotency_key_reused",
    "invalid",
    "method_not_allowed",
    "no_such_file",
    "not_found",
    "not_granted",
    "not_heard",
    "not_json",
    "not_sent_again",
    "nothing_to_dismiss",
    "over_quota",
    "refused",
    "run_has_ended",
    "signal_id_taken",
    "stopped",
    "too_large",
    "too_large_to_send",
    "too_many_streams",
    "too_slow",
    "try_again",
    "unauthorized",
    "unknown_call",
    "unknown_letter",
    "unknown_run",
    "unknown_step",
    "wake_id_taken",
    "wrong_host",
]

TITLES: Mapping[Code, str] = {
    "artifact_changed": "The artifact is not the one that the journal recorded",
    "artifacts_gone": "The artifacts of the run are kept no longer",
    "broken": "The agent failed at this request",
    "callback_refused": "Nothing would ever be sent to this callback",
    "cut_off": "The connection ended within the body",
    "damaged": "The run cannot be read",
    "encoded": "The body is compressed",
    "forbidden": "The token has not the scope that this call needs",
    "foreign_origin": "A page of another site asks",
    "gone": "The run is kept no longer",
    "idempotency_key_reused": "The Idempotency-Key has named another request",
    "invalid": "A field does not fit",
    "method_not_allowed": "The path takes other methods",
    "no_such_file": "The run has no such file",
    "not_found": "There is nothing at this path",
    "not_granted": "More is asked for than is granted",
    "not_heard": "The run took no notice",
    "not_json": "The body is no strict JSON",
    "not_sent_again": "The refused message is not sent again",
    "nothing_to_dismiss": "The run is nothing that waits for a person",
    "over_quota": "The caller's quota is spent",
    "refused": "The request is refused",
    "run_has_ended": "The run has ended already",
    "signal_id_taken": "The signal_id has named another signal",
    "stopped": "Everything is stopped",
    "too_large": "The body is too large",
    "too_large_to_send": "The file is too large to be sent",
    "too_many_streams": "Too many event streams are open",
    "too_slow": "The body came too slowly",
    "try_again": "Not now: come back later",
    "unauthorized": "No token of this service was sent",
    "unknown_call": "The run has not made this model call",
    "unknown_letter": "There is no such dead letter",
    "unknown_run": "There is no such run",
    "unknown_step": "The run has not taken this step",
    "wake_id_taken": "The wake_id has named another request",
    "wrong_host": "The service does not answer to this Host",
}

CODES: tuple[Code, ...] = get_args(Code)


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class FieldError(_Told):
    """One thing that has to change in the request: a field such as `constraints.max_loops`, or a header by its name."""

    field: str
    message: str
    code: str = Field(examples=["missing", "extra_forbidden"])


class ErrorDetail(_Told):
    """The first thing that is wrong."""

    code: str
    message: str
    field: str | None = None
    run_id: str | None = None


class Gone(_Told):
    """What became of a run that is kept no longer, and when it went by which setting."""

    wake_id: str
    status: Status
    ended_at: Instant
    gone_at: Instant
    rule: str


class Problem(_Told):
    """Why a request is not served. Nothing that was sent is repeated in it but names that could be those of fields.

    `code` is for programs, and `type` the same as a URI; `title` says the kind, `detail` what happened and what to do
    now. `instance` names this one refusal, in the agent's log too. `errors` names every field that has to change (the
    first of them, where there are very many), `run_id` the run that is in the way. `error` says the first thing
    that is wrong in short.
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


def kind(code: Code) -> str:
    return f"/docs#{code}"


BROKEN_RETRY_S = 30.0
STOPPED_RETRY_S = 30.0


class Refusal(Exception):
    """`code` is for programs; `field` names what has to change in the request, `errors` all of it."""

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
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field
        self.run_id = run_id
        self.retry_after_s = retry_after_s
        self.gone: Gone | None = None
        self.errors = tuple(errors) or ((FieldError(field=field, message=message, code=code),) if field else ())

    @cached_property
    def instance(self) -> str:
        return new_uuid().urn

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
    """The reader has seen the whole run."""


REFUSED = (Refusal, NotStrictJson, LimitRefused, WakeConflict, Damaged, TryAgain, Fatal)


def broken() -> Refusal:
    return Refusal(500, "broken", "the agent failed at this request; its log says how")


def refusal_of(error: Exception) -> Refusal:
    """Raises `error` again when it is none of REFUSED."""
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


async def present(store: RunStore, run_id: str) -> Run:
    """The run as it stands. Refuses an id that no run has (404), or none any more (410)."""
    run = await store.load(run_id)
    if run is None:
        raise await absent(store, run_id)
    return run


async def absent(store: RunStore, run_id: str) -> Refusal:
    tombstone = await store.tombstone(run_id)
    return gone(tombstone) if tombstone else Refusal(404, "unknown_run", "there is no run of this id")


def no_such_file() -> Refusal:
    return Refusal(404, "no_such_file", "the run has no such file: its workspace lists those it has")


def gone(tombstone: Tombstone) -> Refusal:
    refusal = Refusal(410, "gone", str(tombstone), run_id=tombstone.run_id)
    refusal.gone = Gone(
        wake_id=tombstone.wake_id,
        status=tombstone.status,
        ended_at=tombstone.ended_at,
        gone_at=tombstone.gone_at,
        rule=tombstone.rule,
    )
    return refusal
