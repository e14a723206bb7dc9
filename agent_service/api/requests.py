"""What callers send and get back, over HTTP and the bus. Unknown fields are refused: a misspelt limit is no limit."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from agent_service.api.errors import ApiError, Code, FieldError
from agent_service.core.waiting import FINAL, Status
from agent_service.history.text import View, one_line
from agent_service.metrics.wakes import Transport
from agent_service.views.run import RunView
from groundwork.service import strict
from groundwork.service.machine import new_uuid
from schemas.events import AgenticStart, Cancel, Constraints, Outcome, Signal, SignalKind
from schemas.fields import Context, Count, Goal, Id, Text, plain_rule
from schemas.operations import Scope
from schemas.values import dataclass

MAX_BODY_BYTES = 256 * 1024
EVERY_SCOPE: frozenset[Scope] = frozenset(get_args(Scope))
LONGEST_FIELD = 80
"""Characters of a field's name that an error repeats: callers name fields too."""
MOST_ERRORS = 20
"""Fields that one refusal names."""

SignalText = Annotated[Text, Field(max_length=8192)]
ArgumentsHash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]

M = TypeVar("M", bound=BaseModel)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: `by` for the record, `payer` for quotas (empty for none), `token` by its name, if the API has any."""

    by: str
    payer: str
    transport: Transport
    token: str | None = None
    scopes: frozenset[Scope]


def check_scopes(token: str | None, scopes: frozenset[Scope], needed: Iterable[str]) -> None:
    """Refuses (403) a caller without the needed ones."""
    if not scopes.issuperset(needed):
        raise ApiError(Code.FORBIDDEN, f"token {token} has no scope `{' '.join(needed)}`")


@dataclass(frozen=True, slots=True)
class LongPoll:
    """How long the answer may wait for a run to rest; `hung_up` returns once the caller no longer waits for it."""

    within_s: float
    hung_up: Callable[[], Awaitable[None]]


class Query(BaseModel):
    """Query parameters. The docstrings of fields are the API's documentation."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _Body(BaseModel):
    """A body. Its docstring and those of its fields are the API's documentation."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, defer_build=True
    )

    by: Annotated[Text, Field(max_length=200)] | None = None
    """A name for the caller, in its own word: recorded beside the known caller, and never trusted."""


class CallerConstraints(Constraints):
    """What the run may spend. A limit that is not given is the service's default; its caps hold in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WakeRequest(_Body):
    """Pursue a goal. The same `wake_id` with the same body always names the same run; without one, one is made."""

    wake_id: Id | None = None
    """A name of the caller's choice, for ever: what is sent again under it begins nothing new."""
    goal: Goal
    """What is to be reached, in words: not blank, 32 KiB at most."""
    context: Context = Field(default_factory=dict)
    """What is good to know for it."""
    constraints: CallerConstraints = CallerConstraints.model_construct()
    callback: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s/?#@\\]+([/?#]\S*)?$")] | None = None
    """An HTTP(S) address, without a login in it, that is told how the run goes on."""
    untrusted: bool = False
    """Goal or context hold untrusted content: external writes then need an approval."""
    parent_run_id: Id | None = None
    """The run that led to this one: it is at least one level deeper, and refused beyond `agent.limits.max_depth`."""
    depth: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """How many agents called each other to get here, as far as the caller knows."""

    def start(self) -> AgenticStart:
        """Its fields are those of the start, and were checked as these are."""
        return AgenticStart.model_construct(**vars(self) | {"wake_id": None})


class Nothing(_Body):
    """The call says all: an empty object, or no body."""


class StopRequest(_Body):
    """Stop everything."""

    reason: Annotated[Text, Field(max_length=1024)] | None = None
    """Why, for those who find it stopped."""


class DrainRequest(_Body):
    """End this process in good order."""

    within_s: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """How long what is in hand may take, in seconds; the rest is given up."""


class PruneRequest(_Body):
    """Delete expired runs."""

    dry_run: bool = False
    """Only say what would go."""


class CancelRequest(_Body):
    """End the run."""

    reason: Annotated[Text, Field(max_length=1024)] | None = None
    """Why, for its journal and its ending."""

    def cancel(self, run_id: str) -> Cancel:
        return Cancel(run_id=run_id, reason=self.reason, by=self.by)


class _SignalBody(_Body):
    """What a person says to a run. The same `signal_id` is heard once; without one, one is made."""

    model_config = ConfigDict(validate_default=True)

    signal_id: Id | None = None
    """A name of the caller's choice: what is sent again under it is heard once."""

    @field_validator("outcome", "message", "constraints", "step", "arguments_hash", check_fields=False)
    @classmethod
    def _fits_its_kind(cls, value: V, others: ValidationInfo) -> V:
        """An answer may say its `outcome` in the place of a message."""
        kind, name = others.data.get("kind") if "kind" in cls.model_fields else "answer", others.field_name or ""
        if kind and value is not None and kind not in TAKEN_BY.get(name, (kind,)):
            raise ValueError(f"does not belong to a signal of kind `{kind}`")
        is_said = value is not None or (name == "message" and others.data.get("outcome") is not None)
        if not is_said and name == NEEDED_BY.get(kind or ""):
            raise ValueError(f"is required in a signal of kind `{kind}`")
        return value

    def signal(self, run_id: str) -> Signal:
        said = self.model_dump(include=set(Signal.model_fields) - {"run_id", "signal_id"})
        return Signal(run_id=run_id, signal_id=self.signal_id or f"signal-{new_uuid()}", **{"kind": "answer"} | said)


NEEDED_BY = {
    "message": "message",
    "answer": "message",
    "raise_budget": "constraints",
    "approve": "arguments_hash",
}
"""What a signal must bring, by its kind."""
TAKEN_BY = {
    "outcome": ("answer",),
    "step": ("approve", "reject"),
    "arguments_hash": ("approve", "reject"),
}
"""Fields that only some kinds have."""


class SignalRequest(_SignalBody):
    """A person speaks to a run: whatever `agentic.signal` can say. `approvals` and `answers` are shorter ways."""

    kind: SignalKind
    outcome: Outcome | None = None
    """Of an `answer` about a write in doubt: it `ran`, it `did_not_run`, or the run may `look`."""
    message: SignalText | None = None
    """What is said; a `message` needs it, and an `answer` without an outcome."""
    constraints: CallerConstraints | None = None
    """The limits from now on; `raise_budget` needs some."""
    step: Count | None = None
    """Of `approve` and `reject`: the step that is decided."""
    arguments_hash: ArgumentsHash | None = None
    """Of `approve`, which needs it, and of `reject`: that of `asks` in the view of the run."""


class ApprovalRequest(_SignalBody):
    """A person allows what a run asks for, or refuses it.

    `arguments_hash` and `step` are those of `asks` in the view of the run: what is asked by now under another hash is
    not decided by this. A `reject` may do without.
    """

    kind: Literal["approve", "reject"] = Field(alias="decision")
    arguments_hash: ArgumentsHash | None = None
    step: Count | None = None
    message: Annotated[SignalText | None, Field(alias="reason")] = None


class AnswerRequest(_SignalBody):
    """A person answers a run: its question, or its escalation, which sets it going again.

    `constraints` raise budgets with it. `outcome` is for a write in doubt: it `ran` (`answer` is then what it brought),
    it `did_not_run`, or the run may `look`; then `answer` may be left out.
    """

    outcome: Outcome | None = None
    message: Annotated[SignalText | None, Field(alias="answer")] = None
    """Is needed, unless `outcome` says it all."""
    constraints: CallerConstraints | None = None


class WakeAnswer(BaseModel):
    """The run is durable. Accepted is not completed: where it stands is at `status_url`."""

    accepted: Literal[True] = True
    run_id: str
    wake_id: str
    status_url: str
    run: Annotated[RunView | None, Field(exclude_if=lambda run: run is None)] = None
    """How it stands, where it was waited for."""

    @property
    def http_status(self) -> int:
        return 200 if self.run and self.run.status in FINAL else 202


class CallbackAnswer(BaseModel):
    """Where the run asked to have its ending sent; null where it did not, or where there is no such run."""

    run_id: str
    callback: str | None


class StandingAnswer(View):
    """Where the run stands, in brief. `stopped`: as in the whole view."""

    run_id: str
    status: Status
    stopped: str = ""


class SignalAnswer(View):
    """The run has heard the signal."""

    run_id: str
    status: Status
    signal_id: str


def read(model: type[M], body: bytes) -> M:
    """`body` as what `model` says; no body is an empty object. Raises NotStrictJson, and ApiError (413, 422)."""
    if len(body) > MAX_BODY_BYTES:
        raise ApiError(Code.TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes")
    try:
        return model.model_validate(strict.read(body or b"{}"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise misfits([(flaw["loc"], flaw["msg"], flaw["type"]) for flaw in found]) from error


def misfits(flaws: Sequence[tuple[Sequence[str | int], str, str]]) -> ApiError:
    """The refusal (422) of what pydantic found wrong in the request: where, what, and its word for it."""
    errors = list(dict.fromkeys(_field_error(*flaw) for flaw in flaws[:MOST_ERRORS]))  # two may look at one parameter
    first = errors[0]
    return ApiError(Code.INVALID, f"{first.field}: {first.message}", field=first.field, errors=errors)


_NAME = re.compile(r"[A-Za-z_-]{1,32}\d{0,4}")
"""What could be the name of a field, or of a header: any other may be a secret in the wrong place, and is not told."""
_FORMS = {
    "cursor": "must be the `next_cursor` of the page before",
    "wake_id": "must be 1 to 128 letters, digits, `.`, `_`, `:` or `-`",
    "arguments_hash": "must be the `arguments_hash` that the run asks with: 32 hexadecimal digits",
    "callback": "must be an address that begins with http:// or https://, without a login",
}
"""What a field has to be, where its pattern says it to programs only."""


def _field_error(place: Sequence[str | int], flaw: str, code: str) -> FieldError:
    named = (str(part) if isinstance(part, int) or _NAME.fullmatch(part) else "…" for part in place)
    path = one_line(".".join(named), LONGEST_FIELD) or "body"
    message = "must be an object" if code == "model_type" else plain_rule(flaw)
    if code == "string_pattern_mismatch":
        message = _FORMS.get(path, message)
    return FieldError(field=path, message=message, code=code)
