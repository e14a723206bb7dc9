"""What can happen to a run, in the past tense. Each is one entry of the journal once it changed something.

Instants come in with the event (`at`): the core has no clock.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.phases import Framing, Plan, Reflection, Unusable
from agent_service.core.state import Limits
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The run's turn has come, with the skills it will keep."""

    at: datetime
    skills: tuple[ToolOffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    at: datetime
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one model call cost. `cost_usd` is null when the price is unknown, never 0."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """The model answered call `call`. `plan` comes with a reflection when one call serves both."""

    at: datetime
    call: int
    model: str
    usage: ModelUsage
    decision: Framing | Plan | Reflection | Unusable
    plan: Plan | Unusable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnavailable:
    """Call `call` brought no answer. `remedy` says what to do: try again later, pause, fail, or escalate."""

    at: datetime
    call: int
    remedy: Literal["try_again", "pause", "fail", "escalate"]
    error_class: str
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived:
    at: datetime
    signal: Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The instant `due_at` of the state has come."""

    at: datetime


Event = (
    WakeAccepted
    | RunStarted
    | ToolReturned
    | ModelReplied
    | ModelUnavailable
    | CancelRequested
    | SignalReceived
    | TimerFired
)
