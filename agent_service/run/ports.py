"""The ports of the agent, and values that go through them. Instants are UTC. Errors are named in `errors`."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol

from pydantic import AwareDatetime

from agent_service.archive.retention import NonNegative
from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Next, Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import CallReserve
from schemas.catalog import Catalog
from schemas.status import Halt
from schemas.values import dataclass


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A position in the journal of all runs, which grows in the order of storing."""

    position: int
    run_id: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """A person has seen to an escalated run. It holds as long as `version` is the run's newest entry."""

    run_id: str
    version: NonNegative
    by: str
    at: AwareDatetime


class HaltBoard(Protocol):
    """Shows the other services of the bus whether everything is stopped."""

    async def show(self, halt: Halt) -> None:
        """Raises TryAgain while the bus does not take it."""

    async def shown(self) -> Halt | None:
        """Raises TryAgain."""


class EventBus(Protocol):
    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Durable, under Msg-Id `key`; a duplicate is a success. Raises TryAgain after its retry budget."""

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Does not wait for the bus: the message may be lost, the journal can say it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    """`with_plan`: a framing or a reflection brings its plan along."""

    state: RunState
    call: int
    phase: Phase
    with_plan: bool
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """`model` names who answered, honestly: a script says that it is a script."""

    decision: Decision
    usage: ModelUsage
    model: str
    plan: Next | Unusable | None = None
    provenance: Provenance | None = None
    prompt_bytes: int = 0
    """UTF-8, schema and all; 0 of a model that costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    model: str
    reserve: CallReserve
    prompt_hash: str
    schema_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A prepared call. A reply that is no valid decision is a ModelAnswer too (Unusable)."""

    estimate: Estimate | None
    """None for a model that spends nothing."""
    make: Callable[[], Coroutine[Any, Any, ModelAnswer]]
    """Raises ModelError with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """What a model is told, block by block. `version` is that of the templates."""

    system: tuple[str, ...]
    user: tuple[str, ...]
    version: str


class Model(Protocol):
    def prepare(self, question: ModelQuestion) -> ModelCall:
        """No I/O, and the same each time. May raise ModelError."""


class ModelProvider(Model, Protocol):
    """A model whose key, address and name can be tried without a run."""

    @property
    def verifies(self) -> bool:
        """Whether it can verify claims; a script has to have a rule for that."""

    async def check(self) -> tuple[str, ...]:
        """Notes worth telling. Raises ModelError when it cannot be used."""


class Skills(Protocol):
    async def catalog(self) -> Catalog:
        """The executors' tools, cut to the allowlist and merged. Raises TryAgain while nothing is known."""

    def present(self) -> frozenset[str]:
        """Executors that answered the last catalog query."""


class StepDiagnosis(Protocol):
    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        """Why the executor has not begun the step; empty when all is well, or it does not tell."""


class CallbackCheck(Protocol):
    async def flaw(self, url: str) -> str:
        """Why nothing would be sent there; empty when it may be, and where that is not known."""


class ArtifactReader(Protocol):
    """Contents too large for an event, by run and path (`artifacts/…`)."""

    async def get(self, run_id: str, path: str) -> bytes | None:
        """The content, or None when it does not exist."""


class ArtifactStore(ArtifactReader, Protocol):
    async def put(self, run_id: str, path: str, content: bytes) -> None:
        """An existing content stays. Raises TryAgain."""


class Clock(Protocol):
    def now(self) -> datetime: ...

    def new_run_id(self) -> str:
        """`run_` and a ULID, whose 128 bits are the run's trace id."""
