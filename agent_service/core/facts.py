"""Facts: what an event led to, as values. An entry stores them beside its event; what is told of a run is read there.

A fact repeats nothing of its event: what was said, replied or returned is there.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from agent_service.core.brief import Limits, Spent
from agent_service.core.phases import ItemClaim, Phase
from agent_service.core.waiting import Approval, CallReserve, Pending, Question, RequestName, RequestRef, Status, Stop
from agent_service.sentences import Text
from schemas.events import ToolError
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAsked:
    """The model is asked. `told`: flaws of the last reply, refusals, and what happened since."""

    kind: Literal["call_asked"] = "call_asked"
    call: int
    phase: Phase
    told: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReserved:
    """The most that call `call` may spend is set aside; the call is made next. `model` is the one that is asked. It is
    an event where the call had to wait, and a fact of the entry that asks where it had not.
    """

    kind: Literal["call_reserved"] = "call_reserved"
    at: datetime
    call: int
    model: str
    reserve: CallReserve
    prompt_hash: str = ""
    schema_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPostponed:
    kind: Literal["call_put_off"] = "call_put_off"
    call: int
    phase: Phase
    retry_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLost:
    """The reply to a call that was perhaps paid is lost. `cost_usd` is null where the price is unknown."""

    kind: Literal["call_lost"] = "call_lost"
    call: int
    tokens: int
    cost_usd: float | None


DecisionStatus = Literal["ok", "unusable", "refused", "ignored", "outrun"]
"""`ignored`: came along with a decision that led elsewhere. `outrun`: a person said something newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a decision in a reply. `along`: of the plan that came along. `step`: the one that is planned or
    reflected upon. `attempt` counts how often it was asked for.
    """

    kind: Literal["decided"] = "decided"
    phase: Phase
    step: int
    attempt: int
    status: DecisionStatus
    along: bool = False
    error_class: str = ""
    why: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsJudged:
    """`accepted` claims, with their evidence as the program names it; `refusals`: why others are not."""

    kind: Literal["claims_judged"] = "claims_judged"
    accepted: tuple[ItemClaim, ...] = ()
    refusals: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent:
    """`approved_by`: the person who allowed it."""

    kind: Literal["request_sent"] = "request_sent"
    pending: Pending
    approved_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySet:
    """`pending` is the attempt that follows at its `retry_at`."""

    kind: Literal["retry_set"] = "retry_set"
    pending: Pending


AnswerStatus = Literal["ok", "error", "budget", "continuation", "late", "refused"]
"""`budget`: more than its step may gather. `late`: after the end of the run. `refused`: nothing waited for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAnswered(RequestRef):
    """An attempt is over, by a result, by silence or by a person's word. `error` is null where it is not one."""

    kind: Literal["attempt_answered"] = "attempt_answered"
    attempt: int
    tool: str
    status: AnswerStatus
    error: ToolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped(RequestRef):
    """An attempt whose answer is waited for no more."""

    kind: Literal["request_dropped"] = "request_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAsked:
    """The tool of a step, or of one of its tasks, asks for these before it can answer."""

    kind: Literal["tasks_asked"] = "tasks_asked"
    step: int
    tasks: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished(RequestRef):
    """A step is over, or a task of it; `status` is `budget` only of a step."""

    kind: Literal["finished"] = "finished"
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    summary: str
    error_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slept:
    kind: Literal["slept"] = "slept"
    until: datetime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAsked:
    """`expires_at` is null where no timer decides."""

    kind: Literal["person_asked"] = "person_asked"
    ask: Annotated[Approval | Question | Stop, Field(discriminator="kind")]
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled(RequestRef):
    """`by` is empty where it expired. `step` is 0 for a framing."""

    kind: Literal["ruled"] = "ruled"
    verdict: Literal["approved", "rejected", "expired"]
    by: str
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReopened:
    """A run that had ended of `ending_class` goes on. `waits_for`: requests still out; `tasks`: still asked for."""

    kind: Literal["reopened"] = "reopened"
    ending_class: str
    waits_for: tuple[RequestName, ...] = ()
    tasks: tuple[RequestName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """`spent` by then, and `steps` begun."""

    kind: Literal["ended"] = "ended"
    status: Status
    ending_class: str
    reason: Text
    steps: int
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsRaised:
    kind: Literal["limits_raised"] = "limits_raised"
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    """Where the run stands after the entry. `step`: of the first request that is out, or 0."""

    kind: Literal["stands"] = "stands"
    status: Status
    step: int = 0


Fact = Annotated[
    CallAsked
    | CallReserved
    | CallPostponed
    | CallLost
    | Decided
    | ClaimsJudged
    | RequestSent
    | RetrySet
    | AttemptAnswered
    | RequestDropped
    | TasksAsked
    | RequestFinished
    | Slept
    | PersonAsked
    | Ruled
    | RunReopened
    | RunEnded
    | LimitsRaised
    | RunStanding,
    Field(discriminator="kind"),
]
