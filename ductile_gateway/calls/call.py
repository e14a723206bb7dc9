"""Values of a tool call: CallRequest ─▶ ToolCall ─▶ Verdict ─▶ Call.

Every call ends in one verdict: an outcome, "it never started", or "unknown". An open row means that the tool may have
run. The first answer is kept for ever.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from groundwork.service.errors import GiveUp
from groundwork.telemetry.span import Context, context_of
from schemas import envelope, keys, subjects
from schemas.continuation import Continuation
from schemas.events import MAX_MESSAGE_BYTES, Envelope, ToolRequest
from schemas.fields import validation_flaws
from schemas.values import dataclass

CALL_ID = "agentic_call_id"
"""Argument that gives a tool in a Ductile the key of its call."""
MARK = "agentic_untrusted"
"""Argument that tells it that the run holds untrusted content."""
ALONE = ""
"""Name of the only gateway of a bus, and owner of a call that any gateway may begin."""
_Message = Envelope[ToolRequest]
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """One attempt of one step or sub-request. `route`: last token of the subject. `body`: the message as it came.
    `digest`: of tool, command and arguments. `trace`: its span id may be empty."""

    request: ToolRequest
    route: str
    body: bytes
    digest: str
    trace: Context

    @cached_property
    def key(self) -> str:
        """`run_id:step:tool:attempt`, for a sub-request `run_id:step:task:round:tool:attempt`."""
        request = self.request
        return keys.call(request.run_id, request.step, request.tool, request.attempt, request.task, request.round)

    @cached_property
    def facts(self) -> dict[str, object]:
        request = self.request
        named = {"run_id": request.run_id, "step": request.step, "tool": request.tool, "attempt": request.attempt}
        task = {"task": request.task, "round": request.round} if request.task else {}
        return named | task | {"trace_id": self.trace.trace_id}


def read_request(subject: str, body: bytes, message_headers: Mapping[str, str]) -> CallRequest:
    route = route_of(subject)
    if route == subject or not subjects.NAME.fullmatch(route):
        raise GiveUp(f"subject {subject[:80]} is not {subjects.TOOL_REQUEST} and the name of a route")
    if len(body) > MAX_MESSAGE_BYTES:
        raise GiveUp(f"a message of {len(body)} bytes: at most {MAX_MESSAGE_BYTES} are taken")
    return read_again(route, body, trace=context_of(message_headers.get(envelope.TRACEPARENT)))


def route_of(subject: str) -> str:
    return subject.removeprefix(f"{subjects.TOOL_REQUEST}.")


def read_again(route: str, body: bytes, *, trace: Context | None) -> CallRequest:
    """Reads a stored body. Without `trace` it gets the one of its run. Raises GiveUp."""
    subject = subjects.tool_request(route)
    try:
        # A newer agent may send fields that we do not know.
        envelope = _Message.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise GiveUp(f"not a valid {subjects.TOOL_REQUEST}: {validation_flaws(error)}") from None
    if envelope.type != subject:
        raise GiveUp(f"a message of another type came on subject {subject}")
    request = envelope.payload
    if (request.task is None) != (request.round is None):
        raise GiveUp("a sub-request names its task and its round, and this one only one of them")
    trace = trace or Context(_digest(request.run_id)[:32], span_id="")
    asked = [route, request.tool, request.tool_command, request.tool_payload]
    digest = _digest(_canonical(asked))
    return CallRequest(request=request, route=route, body=body, digest=digest, trace=trace)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


Way = Literal["plugin", "pipeline", "event"]
"""A command or a pipeline by Ductile's API, or an event through its relay ingress."""


class AlreadyStarted(Exception):
    """The call was started before: resume it, never run it again."""


class Withdrawn(Exception):
    """The run has ended: the call is not started."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """An admitted call, for a runner. `deadline_at`: for the tool. `payload`: its arguments, with the contents of
    `artifacts`, which are arguments. `complete`: False if one is missing: the call can be resumed, but must not be
    sent. `may_repeat`: it reads, or repeating it does no harm."""

    asked: CallRequest
    deadline_at: datetime
    payload: Mapping[str, JsonValue]
    artifacts: Collection[str] = ()
    complete: bool = True
    may_repeat: bool = False

    @property
    def key(self) -> str:
        return self.asked.key

    @property
    def plugin(self) -> str:
        return self.asked.route

    @property
    def command(self) -> str:
        return self.asked.request.tool_command


@dataclass(frozen=True)
class ProducedArtifact:
    """`name`: one safe path part of `[A-Za-z0-9._-]`, at most 100 characters, no leading dot or dash."""

    name: str
    content_type: str
    content: bytes

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about the execution. `stderr`: its tail. `last_error`: of the attempt before the last. Both are without
    secrets. `began_at`, `ended_at`: by the executor's clock."""

    job_id: str | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: int | None = None
    exit_code: int | None = None
    stderr: str = ""
    last_error: str = ""

    @property
    def was_rerun(self) -> bool:
        return (self.attempts or 1) > 1


@dataclass(frozen=True)
class ToolOutcome:
    """The answer of a tool. ok: `text` for people, `output` for programs, and `artifacts`. continuation: requests that
    it needs first. error: `message` and `error_class`; `retryable`: another attempt may help, which does not mean that
    it is allowed. After timeout and bad_output a write may have done its work, after storage_full it has; a call that
    expired was not started. `said_by`: the plugin that answered, in a pipeline of several."""

    status: Literal["ok", "error", "continuation"]
    text: str = ""
    output: Mapping[str, JsonValue] = field(default_factory=dict)
    artifacts: tuple[ProducedArtifact, ...] = ()
    error_class: str | None = None
    message: str | None = None
    retryable: bool = False
    continuation: Continuation | None = None
    job: JobFacts = field(default=JobFacts(), compare=False)
    said_by: str = field(default="", compare=False)


def failed(error_class: str, message: str, *, retryable: bool) -> ToolOutcome:
    return ToolOutcome("error", error_class=error_class, message=message, retryable=retryable)


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The tool has not run and never will from that start: the call may be run as a new one."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The tool was started and its end was not seen. `jobs`: jobs of a Ductile that may be the call's."""

    reason: str
    jobs: tuple[str, ...] = ()


Verdict = ToolOutcome | NeverStarted | Unknown


@dataclass(frozen=True, slots=True)
class Receipt:
    """Durable before the call is sent: a call without one was never sent. `job_id`: set once Ductile has answered.
    `newest`: the command's newest job just before, empty for none, None if unknown."""

    begun_at: datetime
    job_id: str | None = None
    way: Way = "plugin"
    newest: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Ductile's job of a call, the first one of a pipeline. `of`: plugin and command, if known. `ductile`: name of the
    Ductile. `late_since`: when it outlived the deadline of the call."""

    job_id: str
    pipeline: bool
    of: tuple[str, str] | None = None
    ductile: str = ""
    late_since: datetime | None = None


EPOCH = datetime.fromtimestamp(0, UTC)
OPEN, ANSWERED = "open", "answered"


@dataclass(frozen=True, kw_only=True)
class Call:
    """The ledger's row of a call: open, or answered at `at`. `body`: of the result once answered, else of the request.
    `by`: the gateway that began or answered it. `runner`: the setting that it was begun with. `begun`: its receipt.
    `late`: a job that outlived the call."""

    key: str
    digest: str
    trace: Context
    run_id: str
    step: int
    state: str = OPEN
    dedupe_key: str = ""
    by: str | None = ALONE
    runner: str = ""
    route: str = ""
    may_repeat: bool = False
    deadline_at: datetime = EPOCH
    begun: Receipt | None = None
    late: Job | None = None
    at: datetime = EPOCH
    body: bytes = b""

    @classmethod
    def of(cls, asked: CallRequest, **more: Any) -> "Call":
        step, run_id = asked.request.step, asked.request.run_id
        return cls(key=asked.key, digest=asked.digest, trace=asked.trace, run_id=run_id, step=step, **more)

    @property
    def is_open(self) -> bool:
        return self.state == OPEN

    def begun_call(self) -> ToolCall:
        """The call of an open row."""
        asked = read_again(self.route, self.body, trace=self.trace)
        return ToolCall(
            asked=asked,
            deadline_at=self.deadline_at,
            payload=asked.request.tool_payload,
            may_repeat=self.may_repeat,
        )

    def facts(self) -> dict[str, object]:
        return {"call": self.key, "run_id": self.run_id, "step": self.step, "trace_id": self.trace.trace_id}
