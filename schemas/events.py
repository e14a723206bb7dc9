"""The events on the bus, as frozen pydantic models (RFC-103; external sibling card).

A message's subject is its `type`; its body is one JSON object `{"type", "payload", "dedupe_key"?}`. Unknown fields of
inbound payloads (start, tool result, cancel, signal) are dropped; outbound payloads have none. Instants are RFC 3339
UTC ending in `Z`. Within a version fields are added, never renamed or removed.
"""

import operator
import re
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from schemas import subjects
from schemas.fields import (
    BudgetUse,
    By,
    Closed,
    Context,
    Count,
    DoneItem,
    Goal,
    Id,
    Instant,
    Json,
    JsonObject,
    Lenient,
    Round,
    Stderr,
    Task,
    Text,
    ToolName,
    Wire,
)

MAX_MESSAGE_BYTES = 1024 * 1024
"""Bytes of a message with its headers, whatever the server allows; larger content is an artifact."""
RESERVED_KEYS = frozenset({"run_id", "step", "tool", "tool_command", "attempt", "wake_id", "capability"})
"""Correlation keys: no content of a payload, a result or a model's reply may override them (RFC-103)."""
GIVEN_KEYS = frozenset({"evidence", "continuations", "continuations_left"})
"""Fields that the agent adds to a sub-request's arguments: results of tasks, and counts of continuations. Plans and
tools may not set them: these names are dropped."""
LONGEST_MESSAGE = 8192
ARTIFACT_PATH = re.compile(r"artifacts/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Path of a run's artifact in events; for `fullmatch`."""


Capability = Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._~-]{1,200}$", exclude_if=operator.not_)]
"""Proof that a result answers a request: opaque to the executor, which returns it unchanged."""


class Constraints(Wire):
    """Limits that the caller sets for a run. `max_loops` and `max_steps` are two names of one number."""

    max_loops: Count | None = None
    max_steps: Count | None = None
    deadline_at: Instant | None = None
    max_tokens: Count | None = None
    max_cost_usd: Annotated[float, Field(strict=True, gt=0)] | None = None
    max_reframes: Annotated[int, Field(strict=True, ge=0)] | None = None

    @property
    def steps(self) -> int | None:
        return self.max_loops or self.max_steps


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
    """The run that waits for this one."""
    depth: Annotated[int, Field(strict=True, ge=0, le=1000, exclude_if=operator.not_)] = 0
    """Number of agents above this one. Raised to the parent's depth plus one if it is less."""


class ToolRequest(Closed):
    """The agent asks for one attempt of one step. The subject's last token is the route of the tool.

    `executor` names the service that offered the tool, if it has a name: any other ignores the request. `task` and
    `round` name a sub-request, which the step's tool or one of its tasks asked for. The result returns `capability`, in
    its payload or in the header `Agentic-Capability`. `untrusted`: the run holds untrusted content, and so may the
    arguments; an executor marks what it writes from them.
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
    """An executor's own facts of a call: its id, the number of times it ran the tool, and the end of the tool's stderr.
    `last_error`: that of the run before."""

    job_id: Annotated[Text | None, Lenient] = None
    attempts: Annotated[Count | None, Lenient] = None
    exit_code: Annotated[int | None, Lenient] = None
    stderr: Stderr = None
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
    """The failure of a call. `class` says what to do; `retryable`: another attempt can help."""

    model_config = ConfigDict(populate_by_name=True)
    error_class: Text = Field(alias="class", default="tool_error", max_length=64)
    message: Text = Field(max_length=LONGEST_MESSAGE)
    retryable: bool = False


def _error_of_text(value: object) -> object:
    """Takes a text as the error's message: RFC-103 gives errors no shape."""
    if not isinstance(value, str):
        return value
    return {"class": "error", "message": value.strip()[:LONGEST_MESSAGE] or "no reason given"}


class ToolOutput(Wire):
    """The output of a call. Large content is an artifact, named by its path below the run, with an excerpt here.

    Further fields are kept, among them an executor's `job_id` and `attempts`, as in ToolError."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Json]
    artifact_path: Text | None = None
    content_type: Text | None = None
    excerpt: Text | None = None

    def as_json(self) -> dict[str, JsonValue]:
        """Its fields without those that are not set. A null of a further field is kept: it says something."""
        return self.model_dump(mode="json", exclude_none=True) | (self.model_extra or {})


class Correlation(Wire):
    """The request that a tool result answers. Without `attempt`, as in RFC-103, it is the pending one. `task` and
    `round` name a sub-request. `capability`: that of the request; required if the tool's offer says that it is
    echoed."""

    run_id: Id
    step: Count
    tool: ToolName
    attempt: Count | None = None
    task: Task = None
    round: Round = None
    capability: Capability = None


class ToolResult(Correlation):
    """The outcome of one attempt of one step, or of a sub-request with its `task` and `round`. Status `continuation`:
    the tool needs tasks first, which `result` names (`schemas.continuation`)."""

    status: Literal["ok", "error", "continuation"]
    result: ToolOutput | None = None
    error: Annotated[
        ToolError | None, BeforeValidator(_error_of_text, json_schema_input_type=ToolError | str | None)
    ] = None
    completed_at: Instant
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """The result holds untrusted content, whatever the tool declares: a webhook answered."""


class Cancel(Wire):
    run_id: Id
    reason: Annotated[Text, Field(max_length=1024)] | None = None
    by: By = None


SignalKind = Literal["message", "answer", "approve", "reject", "resume", "raise_budget"]
BROUGHT_BY = {
    "message": "message",
    "answer": "message",
    "raise_budget": "constraints",
    "approve": "arguments_hash",
}
"""Fields without which a signal of the kind says nothing."""
SubjectHash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Outcome = Literal["ran", "did_not_run", "look"]
"""A person's word on a write in doubt: it ran, it did not, or the agent is to look itself."""


class Signal(Wire):
    """A person speaks to a run: a message, an answer, a ruling, a resume, or a larger budget.

    `approve` names the `arguments_hash` of `agent.waiting`, and may name the step; so may `reject`. An `answer` to a
    question, or to an escalation, which it reopens, is in `message`. It may raise budgets, and name the `question_hash`
    or the `step` that it is for. `outcome`: that of the write in doubt that a run escalated for; `message` then has the
    tool's result.
    """

    run_id: Id
    signal_id: Id
    kind: SignalKind
    message: Annotated[Text, Field(max_length=8192)] | None = None
    constraints: Constraints | None = None
    step: Count | None = None
    arguments_hash: SubjectHash | None = None
    question_hash: SubjectHash | None = None
    outcome: Outcome | None = None
    untrusted: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """The message is untrusted content: it informs the run, and is no order."""
    by: By = None


class WakeAccepted(Closed):
    """The run is durable. Accepted is not completed."""

    run_id: Id
    wake_id: Id
    accepted_at: Instant


class Tally(Closed):
    done: int
    total: int


class Progress(Closed):
    """One committed phase or step. `seq` is the number of its journal entry. A reply that serves several phases tells
    the first of them."""

    run_id: Id
    seq: Count
    phase: Literal["accepted", "frame", "plan", "act", "reflect", "compact", "verify", "end"]
    step: int
    status: Text
    summary: Text
    definition_of_done: Tally
    budget: BudgetUse
    trace_url: Text | None = None


class _Lifecycle(Closed):
    run_id: Id
    has_callback: bool = False
    """The run's ending is to be sent to a callback; the gateway asks the agent for its address."""


class Usage(Closed):
    tokens: int
    cost_usd: float | None


class Completed(_Lifecycle):
    """Published exactly once per completed run, and only if every item of the definition of done is ticked."""

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
    """The run hands itself to a person. `resumable`: it is paused, and a signal can continue it."""

    resumable: bool = False


class Failed(_NotCompleted):
    """The run cannot go on: the agent is misconfigured or broken, with the remedy in the reason."""


class Cancelled(_NotCompleted):
    """A person or a caller stopped the run."""


class Waiting(_Lifecycle):
    """A run waits for a person, for a reason of `kind`.

    `approval`: of `command` of `tool` with `arguments`, or (without a tool) of the framing in `arguments`; the ruling
    names `arguments_hash`. `question`: see `question` and `choices`; the answer may name `question_hash`. `budget`: it
    is spent. `in_doubt`: `step` may or may not have run; the run has escalated, and an answer reopens it. `task` and
    `round` name a sub-request.
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
    """`arguments` as compact JSON in the order of the tool's schema, for readers that would round numbers."""
    arguments_hash: Text | None = None
    question: Text | None = None
    question_hash: Annotated[Text | None, Field(exclude_if=lambda text: text is None)] = None
    choices: tuple[Text, ...] = ()
    tried: Text | None = None
    would_change: Text | None = None
    expires_at: Instant | None = None
    trace_url: Text | None = None


class Reopened(_Lifecycle):
    """A person's answer reopened an escalated run. `answer_to`: the class of the escalation."""

    by: Text
    answer_to: Text
    message: Text | None = None


class Rejected(Closed):
    """A message was refused and is a dead letter now. Its fields are read leniently, and may be missing."""

    subject: Text
    stream_seq: Count
    msg_id: Text | None = None
    dedupe_key: Text | None = None
    run_id: Id | None = None
    step: Annotated[Count | None, Lenient] = None
    reason: Text
    repeat_as: Text | None = None
    """The Nats-Msg-Id for a corrected message: JetStream would drop one under the old id as a duplicate."""


Payload = TypeVar("Payload", bound=BaseModel)


class Envelope(Wire, Generic[Payload]):
    """The body of a message on the bus."""

    type: str
    payload: Payload
    dedupe_key: str | None = None

    def body(self) -> bytes:
        """Compact JSON in UTF-8."""
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
"""Events of the agent by subject (tool requests without the route). The gateway publishes rejections, too."""


@cache
def envelope_of(subject: str) -> type[Envelope[Any]]:
    """The model of a message on `subject`. Cached, because it takes some milliseconds to build."""
    return Envelope.__class_getitem__((INBOUND | OUTBOUND)[subject])  # type: ignore[return-value] # the model of that payload
