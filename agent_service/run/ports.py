"""The ports of the agent; adapters fill them, one library each. Instants are UTC. Errors are named in `errors`."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import date, datetime
from typing import Any, Protocol

from pydantic import AwareDatetime

from agent_service.archive.retention import ArtifactsGone, Tombstone, Whole
from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Next, Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.errors import Damaged
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.lines import EVERY_RUN, RunLine, Sum, Wanted
from schemas.catalog import Catalog
from schemas.status import Halt
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """`digest` is of the request's body: the same name for another body is a conflict."""

    wake_id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undispatched:
    """A run whose entries `seqs` are not known to be fully dispatched."""

    run_id: str
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the journal of all runs, which grows in the order of storing."""

    position: int
    run_id: str
    seq: int


class RunStore(Protocol):
    """The truth. Entry and state are one atomic commit, guarded by the run's version."""

    takes_several: bool
    """Whether several entries can be one commit."""

    async def accept(self, wake: Wake, commit: Commit) -> str:
        """Stores a new run and returns its id; for a known `wake_id` with the same digest, that run's. Raises
        WakeConflict for another digest, TryAgain when nothing could be stored (full, locked).
        """

    async def load(self, run_id: str) -> Run | None:
        """Raises Damaged for a run that cannot be read, which is in quarantine from then on."""

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """What is left of a run that is kept no longer."""

    async def artifacts_gone(self, run_id: str) -> ArtifactsGone | None:
        """Whether the artifacts of a run went that is here, and why."""

    async def commit(self, *commits: Commit) -> None:
        """All or none, of one run and in order. Raises VersionMoved when another entry has the place of one, TryAgain
        as above, Damaged for a run in quarantine.
        """

    def quarantine(self, found: Damaged) -> None:
        """Leave the run of `found` alone until the next start: not due, not queued, no commits."""

    def told(self, run_id: str, seq: int) -> None:
        """Entries up to `seq` are dispatched. Written later, in a batch; a crash may lose it."""

    async def undispatched(self, limit: int) -> Sequence[Undispatched]:
        """Runs, oldest first, with entries not known to be dispatched, and that no message drives."""

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        """Runs whose `due_at` is not after `now`, earliest first."""

    async def queued(self, limit: int) -> Sequence[str]:
        """Runs that have not begun, oldest first."""

    async def may_ask(self, run_id: str, call: int) -> bool:
        """Whether no other process may be making model call `call`, which was asked for before."""

    async def is_current(self, run_id: str, version: int) -> bool:
        """Whether `version` is the newest entry, wherever it was committed. Raises TryAgain."""

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        """Whether another process has reserved model call `call` after entry `since`, by what is known after `load`."""


class Archive(Protocol):
    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """The run's entries with `seq` > `after`, in order."""

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        """The run's signal entries with that id, by index."""

    def version(self, run_id: str) -> int:
        """The newest `seq`, read now; 0 without a run. Raises TryAgain."""

    def newest(self) -> int:
        """The newest position of all runs, read now; 0 where there is none. Raises TryAgain."""

    async def places(self, after: int, limit: int) -> Sequence[Place]:
        """Places after position `after`, in order. Raises TryAgain."""

    async def runs(self, wanted: Wanted = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        """Newest first, from after run `before` on."""

    async def run_of(self, wake_id: str) -> str | None:
        """The id of the run that `wake_id` names."""

    async def unsettled(self, since: datetime) -> Sequence[str]:
        """Runs that have not ended, and those with an entry at or after `since`."""

    async def sums(self, day: date) -> Sequence[Sum]:
        """Over the runs that were accepted on a day (UTC)."""

    async def counts(self) -> dict[Status, int]:
        """How many runs there are of each status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """A person has seen to an escalated run. It holds as long as `version` is the run's newest entry."""

    run_id: str
    version: Whole
    by: str
    at: AwareDatetime


class Inbox(Protocol):
    async def runs(self, limit: int) -> Sequence[tuple[str, datetime]]:
        """Paused runs, and escalated ones without a dismissal, with their newest entries' instants. Newest first."""

    async def count(self) -> int:
        """How many such runs there are."""

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Durable; returns the one in force, which is the earliest of its version."""

    async def dismissal(self, run_id: str) -> Dismissal | None:
        """The newest of a run."""


class Halts(Protocol):
    async def newest(self) -> Halt | None: ...

    async def keep(self, halt: Halt) -> None:
        """Durable, replaces the record of its number. Raises TryAgain."""


class Board(Protocol):
    """Shows the other services of the bus whether everything is stopped."""

    async def show(self, halt: Halt) -> None:
        """Raises TryAgain while the bus does not take it."""

    async def shown(self) -> Halt | None:
        """Raises TryAgain."""


class Bus(Protocol):
    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Durable, under Msg-Id `key`; a duplicate is a success. Raises TryAgain after its retry budget."""

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Does not wait for the bus: the message may be lost, the journal can say it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`with_plan`: a framing or a reflection brings its plan along."""

    state: RunState
    call: int
    phase: Phase
    with_plan: bool
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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
    reserve: Reserve
    prompt_hash: str
    schema_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A prepared call. A reply that is no valid decision is an Answer too (Unusable)."""

    estimate: Estimate | None
    """None for a model that spends nothing."""
    make: Callable[[], Coroutine[Any, Any, Answer]]
    """Raises ModelError with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """What a model is told, block by block. `version` is that of the templates."""

    system: tuple[str, ...]
    user: tuple[str, ...]
    version: str


class Model(Protocol):
    def prepare(self, question: Question) -> ModelCall:
        """No I/O, and the same each time. May raise ModelError."""


class Provider(Model, Protocol):
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


class Troubles(Protocol):
    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        """Why the executor has not begun the step; empty when all is well, or it does not tell."""


class Callbacks(Protocol):
    async def flaw(self, url: str) -> str:
        """Why nothing would be sent there; empty when it may be, and where that is not known."""


class Artifacts(Protocol):
    """Contents too large for an event, by run and path (`artifacts/…`)."""

    async def get(self, run_id: str, path: str) -> bytes | None:
        """The content, or None when it does not exist."""


class KeptArtifacts(Artifacts, Protocol):
    async def put(self, run_id: str, path: str, content: bytes) -> None:
        """An existing content stays. Raises TryAgain."""


class Clock(Protocol):
    def now(self) -> datetime: ...

    def new_run_id(self) -> str:
        """`run_` and a ULID, whose 128 bits are the run's trace id."""
