"""Ports of the agent and their values. Instants are UTC. Errors are defined in `errors`."""

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Protocol

from pydantic import AwareDatetime

from agent_service.archive.retention import NonNegative
from agent_service.core.events import Event, ModelReplied, ModelUnavailable
from agent_service.core.facts import CallReserved
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from agent_service.core.waiting import CallReserve
from groundwork.nats.publishing import StoredMessage
from schemas.catalog import Catalog
from schemas.values import dataclass


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """Position in the journal of all runs, in the order of storing. `seq`: 0 for an entry that cannot be read."""

    position: int
    run_id: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """A person has dismissed an escalated run. It holds while `version` is the run's newest entry."""

    run_id: str
    version: NonNegative
    by: str
    at: AwareDatetime


class EventBus(Protocol):
    """Methods of a NatsLink that publish events."""

    async def publish(
        self,
        subject: str,
        body: bytes,
        *,
        msg_id: str,
        headers: Mapping[str, str],
        within_s: float,
        is_same: Callable[[StoredMessage | None], bool],
    ) -> object: ...

    async def send(self, subject: str, body: bytes, *, headers: dict[str, str]) -> object: ...


class Hearing(Protocol):
    """The messages for this process, as recovery needs them."""

    def is_there(self) -> bool:
        """False while the bus is away."""

    async def drain(self) -> None:
        """Waits until all that the bus kept for this process is in hand."""

    async def await_executors(self) -> None:
        """Waits until the gateway has answered what it was asked by now, for some minutes at most. Raises Failure if
        there is none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    state: RunState
    call: int
    phase: Phase
    now: datetime

    @property
    def with_plan(self) -> bool:
        """True if a framing or reflection comes with its plan."""
        return self.state.brief.fused

    def reserves(self, model: str, reserve: CallReserve, prompt_hash: str, schema_hash: str) -> CallReserved:
        return CallReserved(
            at=self.now, call=self.call, model=model, reserve=reserve, prompt_hash=prompt_hash, schema_hash=schema_hash
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Prepared call. An invalid decision is a reply too (Unusable)."""

    reserved: CallReserved | None
    """The most that it may spend; None for a free model."""
    make: Callable[[], Coroutine[Any, Any, ModelReplied]]
    """Its caller sets the instant of the reply. Raises ModelError with its remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """Prompt of a model call, block by block. `version`: of the templates."""

    system: tuple[str, ...]
    user: tuple[str, ...]
    version: str


class Model(Protocol):
    @property
    def is_free(self) -> bool:
        """True if its calls have no reserve."""

    def prepare(self, question: ModelQuestion) -> ModelCall:
        """No I/O; deterministic. May raise ModelError."""


class ModelProvider(Model, Protocol):
    """Model with a check of its key, address and name."""

    @property
    def verifies(self) -> bool:
        """True if it can verify claims; a script needs a rule for it."""

    async def check(self) -> tuple[str, ...]:
        """Notes for the operator. Raises ModelError if the model cannot be used."""


class Skills(Protocol):
    async def catalog(self) -> Catalog:
        """Tools of all executors, merged and cut to the allowlist. Raises TryAgain while no catalog is known."""

    def present(self) -> frozenset[str]:
        """Executors that answered the last catalog query."""


class ArtifactReader(Protocol):
    """Content too large for an event, by run and path (`artifacts/…`)."""

    async def get(self, run_id: str, path: str) -> bytes | None:
        """None if it does not exist."""


class RunArtifacts(ArtifactReader, Protocol):
    async def put(self, run_id: str, path: str, content: bytes) -> None:
        """Never overwrites. Raises TryAgain."""


class Clock(Protocol):
    def now(self) -> datetime: ...

    def new_run_id(self, at: datetime) -> str:
        """`run_` and a ULID of that instant, whose 128 bits are the run's trace id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCharge:
    """Effect of an entry on the limits of model calls: `tokens` and `usd` are reserved if `reserved`, else used.
    `hold_s`: wait that the provider asked for, with its reason.
    """

    reserved: bool
    tokens: int = 0
    usd: float = 0.0
    replied: bool = False
    hold_s: float | None = None
    why: str = ""


RecordedCall = tuple[datetime, str, CallCharge]
"""Instant of the call, run id, charge."""


@dataclass(frozen=True, slots=True)
class ReservedFunds:
    caller: str
    usd: float


RATE_ERRORS = frozenset({"rate_limit", "overloaded"})
"""Provider errors after which no run calls the model until the wait is over."""


def call_charge(event: Event) -> CallCharge | None:
    """None for an event that is no part of a model call."""
    match event:
        case CallReserved(reserve=reserve):
            return CallCharge(reserved=True, tokens=reserve.tokens, usd=reserve.cost_usd or 0.0)
        case ModelReplied(usage=usage):
            return CallCharge(reserved=False, tokens=usage.input_tokens + usage.output_tokens, replied=True)
        case ModelUnavailable(error_class=error_class, retry_after_s=hold_s, message=message):
            held = error_class in RATE_ERRORS and hold_s is not None
            return CallCharge(reserved=False, hold_s=hold_s if held else None, why=str(message)[:200] if held else "")
    return None
