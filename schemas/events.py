"""The events on the bus, as frozen pydantic models (RFC-103; external sibling card).

A message's subject is its `type`; its body is one JSON object `{"type", "payload", "dedupe_key"?}`. Unknown payload
fields are tolerated from outside (start, tool result, cancel, signal) and never invented inside (what we send).
Instants are RFC 3339 UTC ending in `Z`. Fields are added, never renamed or removed within a version.
"""

import operator
import re
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas import subjects
from schemas.fields import (
    BudgetUse,
    By,
    Context,
    Count,
    DoneItem,
    Goal,
    Id,
    Instant,
    Json,
    JsonObject,
    Lenient,
    OutboundModel,
    Round,
    Task,
    Text,
    ToolName,
    Wire,
)

MAX_MESSAGE_BYTES = 1024 * 1024
"""A message with its headers, whatever a server would take; larger content is an artifact."""
RESERVED_KEYS = frozenset({"run_id", "step", "tool", "tool_command", "attempt", "wake_id", "capability"})
"""Correlation keys: no content of a payload, a result or a model's reply may override them (RFC-103)."""
GIVEN_KEYS = frozenset({"evidence", "continuations", "continuations_left"})
"""What the agent hands on with a sub-request beside its arguments: what others brought, and how often its asker has
been asked. It is the agent's word alone: of a plan, and of what a tool asks for, these names are dropped."""

LONGEST_MESSAGE = 8192
ARTIFACT_PATH = re.compile(r"artifacts/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""How an artifact of a run is named in events; to be matched in full."""


Capability = Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._~-]{1,200}$", exclude_if=operator.not_)]
"""What shows that a result answers a request: opaque to its executor, who brings it back as it came."""


class Constraints(Wire):
    """What the caller allows a run to spend. `max_loops` and `max_steps` are two names of one number."""

    max_loops: Count | None = None
    max_steps: Count | None = None
    deadline_at: Instant | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(strict=True, gt=0)] | None = None
    max_reframes: Annotated[int, Field(strict=True, ge=0)] | None = None


class AgenticStart(Wire):
    """Anyone asks the agent to pursue a goal. `run_id` and `wake_id` come from the wake API only."""

    goal: Goal
    context: Context = Field(default_factory=dict)
    constraints: Constraints = Constraints.model_construct()
    callback: Text | None = None
    run_id: Id | None = None
    wake_id: Id | None = None
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Goal or context hold untrusted content, such as the body of a webhook."""
    by: By = None
    parent_run_id: Annotated[Id | None, Field(exclude_if=operator.not_)] = None
    """The run that asked for this one, and waits for it."""
    depth: Annotated[int, Field(strict=True, ge=0, le=1000, exclude_if=operator.not_)] = 0
    """How many agents called each other to get here. Never believed where it is less than the parent's and one."""


class ToolRequest(OutboundModel):
    """The agent asks for one attempt of one step. The subject's last token is the route that serves the tool.

    `executor` is who offered the tool, if it said its name: any other leaves the request alone.
    `task` and `round` are of a sub-request: what the step's tool, or one of its tasks, asked for before it can answer.
    `capability` is to be brought back with the result, here or in the header `Agentic-Capability`. `untrusted`: the run
    holds untrusted content, and so may the arguments; what is written by them is to be marked as such.
    """

    run_id: Id
    step: Count
    tool: ToolName
    tool_command: ToolName
    tool_payload: JsonObject
    requested_at: Instant
    attempt: Count = 1
    deadline_at: Instant | None = None
    executor: ToolName | None = None
    task: Task = None
    round: Round = None
    capability: Capability = None
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False


class Execution(Wire):
    """How an executor carried out a call: its own id of it, how often it ran the tool for it, and the tool's last
    words. `last_error`: of the run before."""

    job_id: Annotated[Text | None, Lenient] = None
    attempts: Annotated[Count | None, Lenient] = None
    exit_code: Annotated[int | None, Lenient] = None
    stderr: Annotated[Text | None, Lenient] = None
    last_error: Annotated[Text | None, Lenient] = None

    def __str__(self) -> str:
        told = (
            f"job {self.job_id}" if self.job_id else "",
            f"run {self.attempts} times" if self.attempts and self.attempts > 1 else "",
            f"exit code {self.exit_code}" if self.exit_code else "",
            f"it failed before: {self.last_error}" if self.last_error else "",
        )
        return ", ".join(filter(None, told))


class ToolError(Execution):
    """Why a call failed. `class` says what to do; `retryable` says whether another attempt can help.

    What an executor knows besides: its own id of the call, how often it ran the tool for it, and the tool's last words.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)
    error_class: Text = Field(alias="class", default="tool_error", max_length=64)
    message: Text = Field(max_length=LONGEST_MESSAGE)
    retryable: bool = False


def _error_of_text(value: object) -> object:
    """A text in the place of an error is its message: RFC-103 gives errors no shape."""
    if not isinstance(value, str):
        return value
    return {"class": "error", "message": value.strip()[:LONGEST_MESSAGE] or "no reason given"}


class ToolOutput(Wire):
    """What a call brought: large content is an artifact, named by its path below the run, with an excerpt here.

    Further fields are kept. An executor that knows them tells `job_id` and `attempts`, as in ToolError."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)
    __pydantic_extra__: dict[str, Json]
    artifact_path: Text | None = None
    content_type: Text | None = None
    excerpt: Text | None = None


class Correlation(Wire):
    """What a tool result relates to. `attempt`: absent, as in RFC-103, it is the one that is pending. `task` and
    `round`: of a sub-request. `capability`: of the request; an executor whose offer says that it echoes them has to
    bring it."""

    run_id: Id
    step: Count
    tool: ToolName
    attempt: Count | None = None
    task: Task = None
    round: Round = None
    capability: Capability = None


class ToolResult(Correlation):
    """The outcome of one attempt of one step, or of a sub-request of it: then it names the `task` and `round` of the
    request. `continuation`: the tool needs more first, which `result` says (`schemas.continuation`)."""

    status: Literal["ok", "error", "continuation"]
    result: ToolOutput | None = None
    error: Annotated[
        ToolError | None, BeforeValidator(_error_of_text, json_schema_input_type=ToolError | str | None)
    ] = None
    completed_at: Instant
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """What came holds untrusted content, whatever the tool declares: a webhook answered."""


class Cancel(Wire):
    run_id: Id
    reason: Annotated[Text, Field(max_length=1024)] | None = None
    by: By = None


SignalKind = Literal["message", "answer", "approve", "reject", "resume", "raise_budget"]
Outcome = Literal["ran", "did_not_run", "look"]
"""What a person says of a write in doubt: it was carried out, it was not, or the agent may look by itself."""


class Signal(Wire):
    """A person speaks to a run: a message, an answer, a ruling, a resume, or a larger budget.

    `approve` names the `arguments_hash` that `agent.waiting` told, and may name the step; so may `reject`. An `answer`
    to a question, or to an escalation, which it reopens, is in `message`; budgets may be raised with it. `outcome`: of
    the write in doubt that a run escalated for; `message` then says what the tool brought.
    """

    run_id: Id
    signal_id: Id
    kind: SignalKind
    message: Annotated[Text, Field(max_length=8192)] | None = None
    constraints: Constraints | None = None
    step: Count | None = None
    arguments_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    outcome: Outcome | None = None
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """The message is a stranger's: it informs the run, which heeds it no more than a result."""
    by: By = None


class WakeAccepted(OutboundModel):
    """The run is durable. Accepted is not completed."""

    run_id: Id
    wake_id: Id
    accepted_at: Instant


class Tally(OutboundModel):
    done: int
    total: int


class Progress(OutboundModel):
    """One committed phase or step. `seq` is the journal's; it can be published again from the journal.

    A reply that serves several phases commits them as one entry: each is told, in their order, with the same `seq`.
    """

    run_id: Id
    seq: Count
    phase: Literal["accepted", "frame", "plan", "act", "reflect", "compact", "verify", "end"]
    step: int
    status: Text
    summary: Text
    definition_of_done: Tally
    budget: BudgetUse
    trace_url: Text | None = None
    """Where the run's trace is shown."""


class _Lifecycle(OutboundModel):
    run_id: Id
    has_callback: bool = False
    """Whether the run asked for its ending to be sent somewhere. Where that is the gateway asks of the agent."""


class Usage(OutboundModel):
    tokens: int
    cost_usd: float | None


class Completed(_Lifecycle):
    """Published exactly once per completed run, and only when every item of the definition of done is ticked."""

    goal: Text
    outcome: Text
    steps_taken: int
    artifacts: tuple[Text, ...]
    definition_of_done: tuple[DoneItem, ...] = ()
    usage: Usage | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    trace_url: Text | None = None


class _NotCompleted(_Lifecycle):
    goal: Text
    reason: Text
    ending_class: Text = Field(alias="class")
    step: int
    usage: Usage | None = None
    trace_url: Text | None = None


class Escalated(_NotCompleted):
    """The run hands itself to a person. `resumable` is true while it is paused and a signal can set it going."""

    resumable: bool = False


class Failed(_NotCompleted):
    """The run cannot go on: the agent is misconfigured or broken, with the remedy in the reason."""


class Cancelled(_NotCompleted):
    """A person or a caller stopped the run."""


class Waiting(_Lifecycle):
    """A run rests for a person. `kind` says what for.

    `approval`: of `command` of `tool` with `arguments`, or (without a tool) of a framing, which `arguments` then hold;
    an approval names `arguments_hash`. `question`: see `question` and `choices`. `budget`: more of it. `in_doubt`:
    whether `step` was carried out; the run has escalated, and an answer reopens it. `task` and `round`: what is asked
    about is that sub-request of the step.
    """

    kind: Literal["approval", "question", "budget", "in_doubt"]
    reason: Text
    step: int | None = None
    task: Task = None
    round: Round = None
    tool: ToolName | None = None
    command: ToolName | None = None
    arguments: JsonObject | None = None
    arguments_json: Annotated[Text | None, Field(exclude_if=lambda text: text is None)] = None
    """The same as compact JSON in the order of the tool's schema: shown where a reader of JSON would round numbers."""
    arguments_hash: Text | None = None
    question: Text | None = None
    choices: tuple[Text, ...] = ()
    tried: Text | None = None
    would_change: Text | None = None
    expires_at: Instant | None = None
    trace_url: Text | None = None


class Reopened(_Lifecycle):
    """A person's answer set an escalated run going again. `answer_to`: the class of the escalation."""

    by: Text
    answer_to: Text
    message: Text | None = None


class Rejected(OutboundModel):
    """A message was refused and is a dead letter now. What is told of it was read leniently, and may be missing."""

    subject: Text
    stream_seq: Count
    msg_id: Text | None = None
    dedupe_key: Text | None = None
    run_id: Id | None = None
    step: Annotated[Count | None, Lenient] = None
    reason: Text
    repeat_as: Text | None = None
    """The Nats-Msg-Id for a corrected message: under the one it had, JetStream would still drop it as a duplicate."""


Payload = TypeVar("Payload", bound=BaseModel)


class Envelope(BaseModel, Generic[Payload]):
    """The body of a message on the bus."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    type: str
    payload: Payload
    dedupe_key: str | None = None

    def body(self) -> bytes:
        """The message body: compact JSON in UTF-8."""
        return self.model_dump_json(by_alias=True).encode()


INBOUND: dict[str, type[BaseModel]] = {
    subjects.START: AgenticStart,
    subjects.TOOL_RESULT: ToolResult,
    subjects.CANCEL: Cancel,
    subjects.SIGNAL: Signal,
}
OUTBOUND: dict[str, type[BaseModel]] = {
    subjects.TOOL_REQUEST: ToolRequest,
    subjects.WAKE_ACCEPTED: WakeAccepted,
    subjects.PROGRESS: Progress,
    subjects.COMPLETED: Completed,
    subjects.ESCALATED: Escalated,
    subjects.FAILED: Failed,
    subjects.CANCELLED: Cancelled,
    subjects.WAITING: Waiting,
    subjects.REOPENED: Reopened,
    subjects.REJECTED: Rejected,
}
"""What the agent publishes, by subject (tool requests by the subject before the route). The gateway rejects too."""


@cache
def envelope_of(subject: str) -> type[Envelope[Any]]:
    """The model of a message on `subject`. It takes some milliseconds to be made."""
    return Envelope.__class_getitem__((INBOUND | OUTBOUND)[subject])  # type: ignore[return-value] # the model of that payload
