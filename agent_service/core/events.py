"""What can happen to a run, in the past tense. Each is one entry of the journal once it changed something.

Instants come in with the event (`at`): the core has no clock.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.brief import Limits, Parent
from agent_service.core.phases import Decision, Next, Unusable
from agent_service.core.state import Doubt, Ruling
from agent_service.core.waiting import Reserve
from schemas.catalog import ToolOffer
from schemas.events import Signal, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAccepted:
    """A run was asked for. `announce`: it came by the wake API, so `agentic.start` is still to be published."""

    at: datetime
    run_id: str
    wake_id: str
    goal: str
    limits: Limits
    announce: bool
    context: dict[str, JsonValue] = field(default_factory=dict)
    fused: bool = True
    depth: int = 0
    callback: str | None = None
    trace_url: str | None = None
    """Where the run's trace is shown: settled here, so that its endings are the same whenever they are made."""
    by: str = ""
    """Who asked, for the record. Nothing is decided by it."""
    traceparent: str | None = None
    """The caller's place in a trace of its own (W3C Trace Context), to which the run's trace is linked."""
    verify: bool = False
    """Whether somebody else looks at what the model claims (phase `verify`)."""
    untrusted: bool = False
    """Goal or context hold what strangers wrote, such as the body of a webhook."""
    parent: Parent | None = None
    """The step that the run is, or the run that led to it."""
    tools: tuple[str, ...] | None = None
    """The tools that it may use of those on offer, where not all."""
    doubts: tuple[Doubt, ...] = ()
    """Writes of its parent of which nobody knows: they bar the same tools here."""
    refused: tuple[Ruling, ...] = ()
    """What people refused its parent, and is not asked for again here."""
    caller: str = ""
    """Against whose quota it counts; empty where that is nobody's."""
    named: tuple[str, ...] = ()
    """Of a child whose parent holds untrusted content: hosts and addresses that it may read (see `egress`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run's turn has come, with the skills it will keep."""

    at: datetime
    skills: tuple[ToolOffer, ...]


Proof = Literal["named", "another", "none"]
"""Whose capability a result brings: of the request that it names, of another one that is under way, or of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """A result came. `malformed`: only what it relates to could be read, and `result` is the error that says so.

    `place` names the message of a result that does not name its attempt, so that the same message delivered again is
    not taken for the answer to the attempt after it. `unfit`: what is wrong with the arguments of what a continuation
    asks for, by the schemas of their commands. `proof`: what its capability proves; null where nobody looked.
    """

    at: datetime
    result: ToolResult
    malformed: bool = False
    place: str = ""
    unfit: tuple[str, ...] = ()
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one model call cost. `cost_usd` is null when the price is unknown, never 0.

    `input_tokens` is the whole prompt, whether it came from the provider's cache, was written to it, or neither.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a reply comes from, for audit. The hashes are of the prompt's templates and of the reply's JSON Schema."""

    prompt_hash: str
    schema_hash: str
    reply_id: str = ""
    """The provider's name for the reply."""
    stop_reason: str = ""
    cache_miss: str = ""
    """Why the provider could not use its cache, where it said so."""
    provider: str = ""
    """Who was asked, as the GenAI conventions of OpenTelemetry call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReserved:
    """The most that call `call` may spend is set aside; the call is made next. `model` is the one that is asked."""

    at: datetime
    call: int
    model: str
    reserve: Reserve
    prompt_hash: str = ""
    schema_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found where a done-item is claimed to be proved: whether `quote` stands in the whole of `evidence`.

    `evidence` is one place, in the words of `Met`; `why` says what is wrong where it was not found.
    """

    evidence: str
    quote: str
    found: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """The model answered call `call`.

    `plan`: what comes next, with a framing or a reflection when one call serves both.
    `heard`: of how many words of people the prompt told.
    `seen`: one for each quote of the decision. `prompt_bytes`: how long the prompt was, in UTF-8; 0 where not known.
    """

    at: datetime
    call: int
    model: str
    usage: ModelUsage
    decision: Decision
    plan: Next | Unusable | None = None
    provenance: Provenance | None = None
    heard: int = 0
    seen: tuple[Seen, ...] = ()
    prompt_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnavailable:
    """Call `call` brought no answer. `remedy` says what to do: try again later, hold, shrink, pause, fail, or escalate.

    `shrink`: the prompt is too long for the model: take the notes together and ask again. `hold`: it was not made, for
    what may be spent in a day is spent: it is made later, and until then the time of the run stands still.
    `lost`: what it has cost all the same, or perhaps has, in tokens and in USD; null where it has cost nothing.
    """

    at: datetime
    call: int
    remedy: Literal["try_again", "hold", "shrink", "pause", "fail", "escalate"]
    error_class: str
    message: str
    retry_after_s: float | None = None
    lost: tuple[int, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """`by`: who asked, as in WakeAccepted."""

    at: datetime
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived:
    """`by`: who gave it, as in WakeAccepted; `signal.by` is no more than what the signal says itself.

    `said_at`: when the bus had it, which may be long before the agent heard of it; null where the agent was told
    directly.
    """

    at: datetime
    signal: Signal
    by: str = ""
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBroke:
    """The program itself broke in the middle of a turn, and would again. `reason` says over what, and what to do."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodStill:
    """Everything was stopped from `since` on, for that `reason`, and goes on since `at`. `by`: who stopped it."""

    at: datetime
    since: datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The instant `due_at` of the state has come."""

    at: datetime


Event = (
    WakeAccepted
    | RunStarted
    | ToolReturned
    | CallReserved
    | ModelReplied
    | ModelUnavailable
    | CancelRequested
    | SignalReceived
    | TimerFired
    | TurnBroke
    | StoodStill
)
