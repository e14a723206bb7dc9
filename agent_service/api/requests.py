"""What callers may send and what they get back, the same over HTTP and over the bus.

Strict where the bus is tolerant: a field that is not known is refused, for a misspelt limit must not become no limit.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from agent_service.api.refusals import Refusal
from agent_service.telling.plain import one_line
from groundwork.service import strict_json
from schemas.events import AgenticStart, Cancel, Constraints, Signal
from schemas.fields import Goal, Id, JsonObject, Text

MAX_BODY_BYTES = 256 * 1024
LONGEST_FIELD = 80
"""Characters of a field's name that an error repeats: callers name fields too."""

M = TypeVar("M", bound=BaseModel)


class _Sent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Annotated[Text, Field(max_length=200)] | None = None
    """Who asks, in the caller's own word: kept beside what is known of the caller, and believed by nobody."""


class CallerConstraints(Constraints):
    """What the run may spend. A limit that is not given is the service's default; its caps hold in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WakeRequest(_Sent):
    """Pursue a goal. The same `wake_id` with the same body always names the same run; without one, one is made."""

    wake_id: Id | None = None
    goal: Goal
    context: JsonObject = Field(default_factory=dict)
    constraints: CallerConstraints = CallerConstraints()
    callback: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s/?#@\\]+([/?#]\S*)?$")] | None = None
    """An HTTP(S) address, without a login in it, that is told how the run goes on."""

    def start(self) -> AgenticStart:
        """What is asked for, under whatever name."""
        return AgenticStart(
            goal=self.goal, context=self.context, constraints=self.constraints, callback=self.callback, by=self.by
        )


class Nothing(_Sent):
    """The call says all: an empty object, or no body."""


class CancelRequest(_Sent):
    reason: Annotated[Text, Field(max_length=1024)] | None = None

    def cancel(self, run_id: str) -> Cancel:
        return Cancel(run_id=run_id, reason=self.reason, by=self.by)


class SignalRequest(_Sent):
    """A person speaks to a run. The same `signal_id` is heard once; without one, one is made."""

    signal_id: Id | None = None
    kind: Literal["message", "resume", "raise_budget", "approve", "reject"]
    message: Annotated[Text | None, Field(max_length=8192, validate_default=True)] = None
    constraints: Annotated[CallerConstraints | None, Field(validate_default=True)] = None

    @field_validator("message")
    @classmethod
    def _has_its_message(cls, message: str | None, others: ValidationInfo) -> str | None:
        if message is None and others.data.get("kind") == "message":
            raise ValueError("is what a signal of kind `message` must bring")
        return message

    @field_validator("constraints")
    @classmethod
    def _has_its_budget(cls, constraints: CallerConstraints | None, others: ValidationInfo) -> CallerConstraints | None:
        if constraints is None and others.data.get("kind") == "raise_budget":
            raise ValueError("are what a signal of kind `raise_budget` must bring")
        return constraints

    def signal(self, run_id: str) -> Signal:
        return Signal(
            run_id=run_id,
            signal_id=self.signal_id or f"signal-{uuid4()}",
            kind=self.kind,
            message=self.message,
            constraints=self.constraints,
            by=self.by,
        )


class WakeAnswer(BaseModel):
    """The run is durable. Accepted is not completed: where it stands is at `status_url`."""

    accepted: Literal[True] = True
    run_id: str
    wake_id: str
    status_url: str


class CallbackAnswer(BaseModel):
    """Where the run asked to have its ending sent; null where it did not, or where there is no such run."""

    run_id: str
    callback: str | None


class CancelAnswer(BaseModel):
    """Where the run stands after a cancel."""

    run_id: str
    state: str


class SignalAnswer(BaseModel):
    """The run has heard the signal."""

    run_id: str
    signal_id: str
    state: str


def read(model: type[M], body: bytes) -> M:
    """`body` as what `model` says; no body is an empty object. Raises NotStrictJson, and Refusal (413, 422)."""
    if len(body) > MAX_BODY_BYTES:
        raise too_large()
    try:
        return model.model_validate(strict_json.read(body or b"{}"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise unfit(first["loc"], first["msg"]) from error


def too_large() -> Refusal:
    return Refusal(413, "too_large", f"the body has more than {MAX_BODY_BYTES} bytes")


def unfit(place: Sequence[str | int], flaw: str) -> Refusal:
    """The refusal (422) of what pydantic found wrong at `place` in the request."""
    path = one_line(".".join(map(str, place)), LONGEST_FIELD) or "body"
    return Refusal(422, "invalid", f"{path}: {flaw.removeprefix('Value error, ')}", field=path)
