"""The kinds of problems that callers are told of, by their codes (RFC 9457, Problem Details for HTTP APIs).

A kind is named by its place in the page /docs of the agent that answers, and has one title, whatever happened.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.waiting import Status
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
