"""Requests and answers, over HTTP and the bus. Unknown fields are refused, because a misspelt limit would be none."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import not_
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from agent_service.api.errors import ApiError, Code, FieldError
from agent_service.core.waiting import FINAL, Status
from agent_service.history.text import View, one_line
from agent_service.metrics import Transport
from agent_service.views.run import RunView
from groundwork.service import strict
from groundwork.service.machine import new_uuid
from schemas.events import BROUGHT_BY, AgenticStart, Cancel, Constraints, Outcome, Signal, SignalKind, SubjectHash
from schemas.fields import Context, Count, Goal, Id, Text, plain_rule
from schemas.operations import Scope
from schemas.values import dataclass

MAX_BODY_BYTES = 256 * 1024
EVERY_SCOPE: frozenset[Scope] = frozenset(get_args(Scope))
LONGEST_FIELD = 80
"""Characters of a field name in an error; callers choose the names of unknown fields."""
MOST_ERRORS = 20
"""Faults in one refusal."""

SignalText = Annotated[Text, Field(max_length=8192)]

M = TypeVar("M", bound=BaseModel)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`by` is recorded, `payer` has the quotas (empty for none), `token` is the name of the token, if any."""

    by: str
    payer: str
    transport: Transport
    token: str | None = None
    scopes: frozenset[Scope]


def check_scopes(token: str | None, scopes: frozenset[Scope], needed: Iterable[str]) -> None:
    """Refuses a caller without the needed scopes (403)."""
    if not scopes.issuperset(needed):
        text = f"token {token} has no scope `{' '.join(needed)}`: add it in `agent.http.tokens`, or use another token"
        raise ApiError(Code.FORBIDDEN, text)


@dataclass(frozen=True, slots=True)
class LongPoll:
    """The longest wait for a run to rest; `hung_up` returns once the caller has disconnected."""

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
    """A name that the caller gives itself: recorded beside the known caller, and never trusted."""


class CallerConstraints(Constraints):
    """Limits of the run. A missing limit is the service's default; the service's caps hold in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WakeRequest(_Body):
    """Start a run. The same `wake_id` with the same body always names the same run; a missing one is generated."""

    wake_id: Id | None = None
    """A name that the caller chooses, valid for ever: a repetition under it starts no other run."""
    goal: Goal
    """The goal in words: not blank, 32 KiB at most."""
    context: Context = Field(default_factory=dict)
    """Background for the goal."""
    constraints: CallerConstraints = CallerConstraints.model_construct()
    callback: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s/?#@\\]+([/?#]\S*)?$")] | None = None
    """An HTTP(S) address without a login, which receives the progress and ending of the run."""
    untrusted: Annotated[bool, Field(strict=True)] = False
    """Goal or context contain untrusted content: external writes then need an approval."""
    parent_run_id: Id | None = None
    """The parent of this run, which is at least one level deeper, and refused beyond `agent.limits.max_depth`."""
    depth: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    """The level in the tree of agents, as far as the caller knows."""

    def start(self) -> AgenticStart:
        """Skips validation: both models check the same fields alike."""
        return AgenticStart.model_construct(**vars(self) | {"wake_id": None})


class Nothing(_Body):
    """An empty object, or no body."""


class StopRequest(_Body):
    """Stop everything."""

    reason: Annotated[Text, Field(max_length=1024)] | None = None
    """The reason, for people who find the agent stopped."""


class DrainRequest(_Body):
    """End this process gracefully."""

    within_s: Annotated[float, Field(strict=True, ge=0, le=3600)] = 60.0
    """Seconds for open work; the rest is given up."""


class PruneRequest(_Body):
    """Delete expired runs."""

    dry_run: Annotated[bool, Field(strict=True)] = False
    """Delete nothing, and list what would be deleted."""


class CancelRequest(_Body):
    """End the run."""

    reason: Annotated[Text, Field(max_length=1024)] | None = None
    """The reason, for journal and ending."""

    def cancel(self, run_id: str) -> Cancel:
        """Skips validation: no run has an id of another form, so none is found by it."""
        return Cancel.model_construct(**vars(self) | {"run_id": run_id})


class _SignalBody(_Body):
    """A signal of a person to a run. A repeated `signal_id` counts once; a missing one is generated."""

    model_config = ConfigDict(validate_default=True)

    signal_id: Id | None = None
    """A name that the caller chooses: a repetition under it counts once."""

    @field_validator("outcome", "message", "constraints", "step", "arguments_hash", "question_hash", check_fields=False)
    @classmethod
    def _check_kind(cls, value: V, others: ValidationInfo) -> V:
        """An answer may give an `outcome` instead of a message."""
        kind, name = others.data.get("kind") if "kind" in cls.model_fields else "answer", others.field_name or ""
        if kind and value is not None and kind not in TAKEN_BY.get(name, (kind,)):
            raise ValueError(f"does not belong to a signal of kind `{kind}`")
        is_said = value not in (None, "") or (name == "message" and others.data.get("outcome") is not None)
        if not is_said and name == BROUGHT_BY.get(kind or ""):
            raise ValueError(f"is required in a signal of kind `{kind}`")
        return value

    def signal(self, run_id: str, key: str | None) -> Signal:
        """Skips validation, as `cancel` does. `key`: the id of a body without one."""
        names = {"run_id": run_id, "signal_id": self.signal_id or key or f"signal-{new_uuid()}"}
        return Signal.model_construct(**{"kind": "answer"} | vars(self) | names)


TAKEN_BY = {
    "outcome": ("answer",),
    "step": ("approve", "reject", "answer"),
    "arguments_hash": ("approve", "reject"),
    "question_hash": ("answer",),
}
"""Kinds of the fields that not all kinds have."""


class SignalRequest(_SignalBody):
    """Send any `agentic.signal` to a run. `approvals` and `answers` are shorter ways."""

    kind: SignalKind
    outcome: Outcome | None = None
    """For an `answer` about a write in doubt: it `ran`, it `did_not_run`, or the run may `look`."""
    message: SignalText | None = None
    """The text; required for a `message`, and for an `answer` without an outcome."""
    constraints: CallerConstraints | None = None
    """The limits from now on; required for `raise_budget`."""
    step: Count | None = None
    """For `approve`, `reject` and `answer`: the step in `asks` of the run."""
    arguments_hash: SubjectHash | None = None
    """Required for `approve`, optional for `reject`: the hash in `asks` of the run."""
    question_hash: SubjectHash | None = None
    """For `answer`: the hash in `asks` of the run."""


class ApprovalRequest(_SignalBody):
    """Approve or reject the request of a run.

    `arguments_hash` and `step` are those in `asks` of the run: a request that has another hash by now is not decided. A
    `reject` does not need them.
    """

    kind: Literal["approve", "reject"] = Field(alias="decision")
    arguments_hash: SubjectHash | None = None
    step: Count | None = None
    message: Annotated[SignalText | None, Field(alias="reason")] = None


class AnswerRequest(_SignalBody):
    """Answer a question of a run, or its escalation, which reopens it.

    An answer with the `question_hash` or the `step` in `asks` of the run settles nothing newer. `constraints` raise
    budgets. `outcome` is for a write in doubt: it `ran` (then `answer` is its result), it `did_not_run`, or the run may
    `look`; with an outcome, `answer` is optional.
    """

    outcome: Outcome | None = None
    message: Annotated[SignalText | None, Field(alias="answer")] = None
    """Required without `outcome`."""
    constraints: CallerConstraints | None = None
    question_hash: SubjectHash | None = None
    step: Count | None = None


class WakeAnswer(BaseModel):
    """The run is durable. Accepted is not completed: its status is at `status_url`."""

    accepted: Literal[True] = True
    run_id: str
    wake_id: str
    status_url: str
    run: Annotated[RunView | None, Field(exclude_if=not_)] = None
    """The run after the wait, if one was asked for."""

    @property
    def http_status(self) -> int:
        return 200 if self.run and self.run.status in FINAL else 202


class CallbackAnswer(BaseModel):
    """The callback address of the run; null if it has none, or does not exist."""

    run_id: str
    callback: str | None


class StandingAnswer(View):
    """The status of the run. `stopped`: as in the whole view."""

    run_id: str
    status: Status
    stopped: str = ""


class SignalAnswer(View):
    """The run has taken the signal."""

    run_id: str
    status: Status
    signal_id: str


def read(model: type[M], body: bytes) -> M:
    """Parses `body`; no body is an empty object. Raises NotStrictJson, and ApiError (413, 422)."""
    if len(body) > MAX_BODY_BYTES:
        raise ApiError(Code.TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes")
    try:
        return model.model_validate(strict.read(body or b"{}"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise misfits([(_place(model, flaw), flaw["msg"], flaw["type"]) for flaw in found]) from error


def _place(model: type[BaseModel], flaw: ErrorDetails) -> tuple[int | str, ...]:
    """pydantic names a default by its field, and what was sent by its alias."""
    field = model.model_fields.get(".".join(map(str, flaw["loc"]))) if flaw["type"] == "value_error" else None
    return (field.alias,) if field and field.alias else flaw["loc"]


def misfits(flaws: Sequence[tuple[Sequence[str | int], str, str]]) -> ApiError:
    """Refusal (422) of flaws that pydantic found: place, message and error type of each."""
    errors = list(dict.fromkeys(_field_error(*flaw) for flaw in flaws[:MOST_ERRORS]))
    first = errors[0]
    return ApiError(Code.INVALID, f"{first.field}: {first.message}", field=first.field, errors=errors)


_NAME = re.compile(r"[A-Za-z_-]{1,32}\d{0,4}")
"""Possible names of fields and headers; any other text may be a misplaced secret, and is not repeated."""
_FORMS = {
    "cursor": "must be the `next_cursor` of the page before",
    "arguments_hash": "must be the `arguments_hash` that the run asks with: 32 hexadecimal digits",
    "question_hash": "must be the `question_hash` that the run asks with: 32 hexadecimal digits",
    "callback": "must be an address that begins with http:// or https://, without a login",
}
"""Rules in words for fields whose pattern is for programs."""


def _field_error(place: Sequence[str | int], flaw: str, code: str) -> FieldError:
    named = (str(part) if isinstance(part, int) or _NAME.fullmatch(part) else "…" for part in place)
    path = one_line(".".join(named), LONGEST_FIELD) or "body"
    message = "must be an object" if code == "model_type" else plain_rule(flaw)
    if code == "string_pattern_mismatch":
        message = _FORMS.get(path, message)
    return FieldError(field=path, message=message, code=code)
