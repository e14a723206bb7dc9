"""Facts: the consequences of an event, without its content. Entries store them, and all that is shown is read there."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from agent_service.core.brief import Limits, Spent
from agent_service.core.phases import ItemClaim, Phase
from agent_service.core.waiting import Ask, CallReserve, Pending, RequestName, RequestRef, Status
from agent_service.sentences import Text
from schemas.events import ToolError
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAsked:
    """The model is asked. `told`: flaws of the last reply, refusals, and news since."""

    kind: Literal["call_asked"] = "call_asked"
    call: int
    phase: Phase
    told: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReserved:
    """The maximum that `call` may spend. An event if the call had to wait, else a fact of the entry that asks."""

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
    """`cost_usd` is null where the price is unknown."""

    kind: Literal["call_lost"] = "call_lost"
    call: int
    tokens: int
    cost_usd: float | None


DecisionStatus = Literal["ok", "unusable", "refused", "ignored", "outrun"]
"""`ignored`: a plan that came along with a decision that led elsewhere. `outrun`: a person's message is newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """`along`: a plan beside another decision. `step` is planned or reflected on. `attempt` counts calls for it."""

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
    """`refusals`: reasons against the claims that are not `accepted`."""

    kind: Literal["claims_judged"] = "claims_judged"
    accepted: tuple[ItemClaim, ...] = ()
    refusals: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent:
    kind: Literal["request_sent"] = "request_sent"
    pending: Pending
    approved_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySet:
    """`pending` is the next attempt, due at its `retry_at`."""

    kind: Literal["retry_set"] = "retry_set"
    pending: Pending


AnswerStatus = Literal["ok", "error", "budget", "continuation", "late", "refused"]
"""`budget`: over the limits of its step. `late`: after the end of the run. `refused`: nothing waited for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptAnswered(RequestRef):
    """An attempt is over, by a result, by a timeout or by a person's word."""

    kind: Literal["attempt_answered"] = "attempt_answered"
    attempt: int
    tool: str
    status: AnswerStatus
    error: ToolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped(RequestRef):
    """The run no longer waits for the answer to an attempt."""

    kind: Literal["request_dropped"] = "request_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAsked:
    kind: Literal["tasks_asked"] = "tasks_asked"
    tasks: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished(RequestRef):
    """A step, or a task of one, is over. Only a step has status `budget`."""

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
    kind: Literal["person_asked"] = "person_asked"
    ask: Ask
    expires_at: datetime | None = None


RulingVerdict = Literal["approved", "rejected", "expired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled(RequestRef):
    """A decision on an approval. `subject_hash` covers tool, command and arguments, or the framing. `by` is empty where
    it expired. `step` is 0 for a framing, and for a refusal that a child inherits. A refusal stands until people send
    more than `words` messages.
    """

    kind: Literal["ruled"] = "ruled"
    subject_hash: str
    verdict: RulingVerdict
    by: str
    reason: Text = ""
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReopened:
    """An ended run goes on. `ending_class`: of its end. `waits_for`: requests still out. `tasks`: open ones."""

    kind: Literal["reopened"] = "reopened"
    ending_class: str
    waits_for: tuple[RequestName, ...] = ()
    tasks: tuple[RequestName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
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
    """Status after the entry. `step`: of the first request that is out, or 0."""

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
