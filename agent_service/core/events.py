"""Events of a run, and the transitions that they lead to. An event brings its instant (`at`): the core has no clock."""

from datetime import datetime
from functools import cached_property
from typing import Literal, TypeVar

from agent_service.core.brief import Brief
from agent_service.core.facts import CallReserved, Fact, Ruled
from agent_service.core.phases import Decision, Next, Unusable
from agent_service.core.state import Doubt, RunState
from agent_service.sentences import Text
from schemas.catalog import ToolOffer
from schemas.events import Signal, ToolResult
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAccepted:
    """`traceparent`: the caller's trace (W3C Trace Context). `doubts` and `refused` actions are those of the parent."""

    at: datetime
    run_id: str
    wake_id: str
    brief: Brief
    by: str = ""
    traceparent: str | None = None
    doubts: tuple[Doubt, ...] = ()
    refused: tuple[Ruled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    at: datetime
    skills: tuple[ToolOffer, ...]


CapabilityCheck = Literal["named", "another", "none"]
"""The capability in a result belongs to the request that it names, to another one in flight, or to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """`malformed`: only its correlation could be read. `place`: the stream position of a result without an attempt, so
    that a redelivery does not answer the next attempt. `proof` is null where it was not checked.
    """

    at: datetime
    result: ToolResult
    malformed: bool = False
    place: str = ""
    proof: CapabilityCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """`cost_usd` is null when the price is unknown, never 0. `input_tokens` includes cached ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """For audit. `prompt_hash`: of templates. `cache_miss`: its reason. `provider`: by OpenTelemetry's GenAI names."""

    prompt_hash: str
    schema_hash: str
    reply_id: str = ""
    stop_reason: str = ""
    cache_miss: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteCheck:
    """The search for `quote` in the full `evidence`, as `ItemClaim` names it. `why`: the reason of a miss."""

    evidence: str
    quote: str
    found: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """`plan` came along with a framing or a reflection. `words`: number of people's messages in the prompt. `seen`: one
    for each quote. `prompt_bytes`: UTF-8; 0 where unknown.
    """

    at: datetime
    call: int
    model: str
    usage: ModelUsage
    decision: Decision
    plan: Next | Unusable | None = None
    provenance: Provenance | None = None
    words: int = 0
    seen: tuple[QuoteCheck, ...] = ()
    prompt_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnavailable:
    """`remedy` `shrink`: the prompt is too long; `hold`: the day's money is spent, so call and deadline wait. `lost`:
    possible cost in tokens and USD; null if it cannot have cost anything.
    """

    at: datetime
    call: int
    remedy: Literal["try_again", "hold", "shrink", "pause", "fail", "escalate"]
    error_class: str
    message: Text
    retry_after_s: float | None = None
    lost: tuple[int, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    at: datetime
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived:
    """`by` is the known sender, `signal.by` its own claim. `said_at`: instant on the bus; null over HTTP."""

    at: datetime
    signal: Signal
    by: str = ""
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBroke:
    """The program failed in the middle of a turn, and would again."""

    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodStill:
    """All runs were stopped since `since`, and go on at `at`."""

    at: datetime
    since: datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
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
F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class EventFacts:
    event: Event
    facts: tuple[Fact, ...] = ()

    @cached_property
    def kinds(self) -> frozenset[type[Fact]]:
        return frozenset(map(type, self.facts))

    def all(self, kind: type[F]) -> tuple[F, ...]:
        return tuple([fact for fact in self.facts if isinstance(fact, kind)]) if kind in self.kinds else ()

    def first(self, kind: type[F]) -> F | None:
        for fact in self.facts if kind in self.kinds else ():
            if isinstance(fact, kind):
                return fact
        return None


@dataclass(frozen=True, kw_only=True)
class Transition(EventFacts):
    """Nothing changed if `ignored` is set. `refused`: the sender has no right to the event."""

    state: RunState | None
    ignored: Text = ""
    refused: bool = False
