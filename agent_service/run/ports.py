"""The seams of the agent: what it needs of the world, in its own words. Adapters fill them, one library each.

Every instant is UTC. Errors are named in `errors`: what to do about them.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from agent_service.archive.tombstones import ArtifactsGone, Tombstone
from agent_service.core.events import ModelUsage, Provenance
from agent_service.core.phases import Decision, Next, Phase, Unusable
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.errors import Damaged
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.lines import EVERY_RUN, RunLine, Wanted
from schemas.catalog import Catalog
from schemas.status import Halt


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A caller's name for a run. `digest` is of the request's body: the same name for another body is a conflict."""

    wake_id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A run of which it is not known that all was done that its entries `seqs` ask for."""

    run_id: str
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry stands in the journal of all runs, whose positions grow in the order of storing."""

    position: int
    run_id: str
    seq: int


class RunStore(Protocol):
    """The truth. Entry and state are written in one atomic commit, guarded by the run's version.

    Where several processes share it, each sees to its own: to runs whose newest entry is its own, and to the entries
    that it has committed; and to those of a dead one whose heir it is.
    """

    async def accept(self, wake: Wake, commit: Commit) -> str:
        """Store a new run, durably, and return its id; where `wake_id` is known with the same digest, the id it has.

        Raises WakeConflict for another digest, TryAgain when nothing could be stored (full, locked).
        """

    async def load(self, run_id: str) -> Run | None:
        """The run, or None. Raises Damaged for one that cannot be read; it is in quarantine from then on."""

    async def tombstone(self, run_id: str) -> Tombstone | None:
        """What is left of a run that is kept no longer."""

    async def artifacts_gone(self, run_id: str) -> ArtifactsGone | None:
        """Whether the artifacts of a run went that is here, and why."""

    async def commit(self, commit: Commit) -> None:
        """Append the entry, durably. Raises VersionMoved when another entry has its place, TryAgain as above, Damaged
        for a run in quarantine."""

    def quarantine(self, found: Damaged) -> None:
        """Leave the run of `found` alone until the next start: nothing of it is due or queued, nothing is committed."""

    def told(self, run_id: str, seq: int, *, since: int = 1) -> None:
        """All is done that the run's entries from `since` up to `seq` ask for, as far as this process sees to them.
        Written with its next commit, or a little later for many runs at once; nothing waits for it, and a crash may
        lose it."""

    async def untold(self, limit: int) -> Sequence[Untold]:
        """Runs, oldest first, of whose entries this process sees to some that are not known to be done."""

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        """Runs whose `due_at` is not after `now`, earliest first: those that this process sees to, as below."""

    async def queued(self, limit: int) -> Sequence[str]:
        """Runs that were accepted and have not begun, oldest first."""

    async def ours(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Those of the runs that this process sees to."""

    async def sees_to(self, run_id: str, seq: int) -> bool:
        """Whether this process sees to what entry `seq` of the run asks for."""

    async def is_current(self, run_id: str, version: int) -> bool:
        """Whether entry `version` is the newest of the run, wherever it was committed. Raises TryAgain."""

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        """Whether another process has set something aside for the run's model call `call` after entry `since`: then
        the call is that one's. Asked of what is known after `load`."""


class Archive(Protocol):
    """The journal and the runs, for reading."""

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """The run's entries with `seq` > `after`, in order."""

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        """The run's entries of signals of that id, in order, without a look at the rest of its journal."""

    def version(self, run_id: str) -> int:
        """The `seq` of the run's newest entry, right now; 0 where there is no such run. Raises TryAgain."""

    def newest(self) -> int:
        """The position of the newest entry of all runs, right now; 0 where there is none. Raises TryAgain."""

    def places(self, after: int, limit: int) -> Sequence[Place]:
        """Where the entries stand that follow on position `after`, in order, right now. Raises TryAgain."""

    async def runs(self, wanted: Wanted = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        """Runs, newest first, from after run `before` on."""

    async def run_of(self, wake_id: str) -> str | None:
        """The id of the run that `wake_id` names."""

    async def unsettled(self, since: datetime) -> Sequence[str]:
        """Runs that have not ended, and those with an entry at or after `since`."""

    async def counts(self) -> dict[Status, int]:
        """How many runs there are of each status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissal:
    """Somebody has seen to a run that ended in their hands. It holds as long as `version` is the run's newest entry."""

    run_id: str
    version: int
    by: str
    at: datetime


class Inbox(Protocol):
    """What waits for a person."""

    async def runs(self, limit: int) -> Sequence[tuple[str, datetime]]:
        """Paused runs, and escalated ones that nobody has dismissed, with the instants of their newest entries.

        Newest first.
        """

    async def count(self) -> int:
        """How many such runs there are."""

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Durably; returns the one in force, which is an earlier one of the same version where there is one."""

    async def dismissal(self, run_id: str) -> Dismissal | None:
        """The newest of a run."""


class Halts(Protocol):
    """When everything was stopped, and by whom."""

    async def newest(self) -> Halt | None: ...

    async def keep(self, halt: Halt) -> None:
        """Durably, in the place of what is known of its number. Raises TryAgain."""


class Board(Protocol):
    """Where the other services of the bus see whether everything is stopped."""

    async def show(self, halt: Halt) -> None:
        """Raises TryAgain while the bus does not take it."""

    async def shown(self) -> Halt | None:
        """Raises TryAgain."""


class Bus(Protocol):
    """What leaves the agent."""

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Durably, under Msg-Id `key`; a duplicate is a success. Raises TryAgain after its retry budget."""

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        """Without waiting for the bus: the message may be lost, the journal can say it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One model call: what to decide, of which run. `with_plan`: a framing or a reflection brings its plan along."""

    state: RunState
    call: int
    phase: Phase
    with_plan: bool
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model call brought. `model` names who answered, honestly: a script says that it is a script."""

    decision: Decision
    usage: ModelUsage
    model: str
    plan: Next | Unusable | None = None
    provenance: Provenance | None = None
    prompt_bytes: int = 0
    """How long the prompt was, in UTF-8, schema and all; 0 of a model that costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a call will be made with, and the most it can spend."""

    model: str
    reserve: Reserve
    prompt_hash: str
    schema_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call that is put together and not made yet. A reply that is no valid decision is an Answer too (Unusable)."""

    estimate: Estimate | None
    """The most that the call can spend; None for a model that spends nothing."""
    make: Callable[[], Coroutine[Any, Any, Answer]]
    """Ask. Raises ModelError with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """What a model is told with a question, block by block. `version` is that of the templates."""

    system: tuple[str, ...]
    user: tuple[str, ...]
    version: str


class Model(Protocol):
    """Frames, plans, reflects, compacts and verifies."""

    def prepare(self, question: Question) -> ModelCall:
        """The call that asks `question`. No I/O, and the same each time. May raise ModelError."""


class Provider(Model, Protocol):
    """A model whose key, address and name can be tried without a run."""

    @property
    def verifies(self) -> bool:
        """Whether it can be asked to verify what was claimed. A script has to have a rule for that."""

    async def check(self) -> tuple[str, ...]:
        """What is worth knowing of it, such as its end. Raises ModelError when it cannot be used."""


class Skills(Protocol):
    """The tools on offer now."""

    async def catalog(self) -> Catalog:
        """What the executors offer, cut to the allowlist and merged. Raises TryAgain while nothing is known."""

    def present(self) -> frozenset[str]:
        """The names of the executors that answered at the last asking."""


class Troubles(Protocol):
    """Why executors cannot act, as they say themselves."""

    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        """Why it has not begun the step; empty when all is well, and where it does not tell."""


class Callbacks(Protocol):
    """Where the endings of runs are sent."""

    async def flaw(self, url: str) -> str:
        """Why nothing would ever be sent there; empty when it may be, and where nobody tells."""


class Artifacts(Protocol):
    """Contents too large for an event, by run and path (`artifacts/…`)."""

    async def get(self, run_id: str, path: str) -> bytes | None:
        """The content, or None when it does not exist."""


class KeptArtifacts(Artifacts, Protocol):
    """The same, and more may be kept there."""

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        """Keep the content, unless it is there already. Raises TryAgain."""


class Clock(Protocol):
    """Time and identity."""

    def now(self) -> datetime: ...

    def new_run_id(self) -> str:
        """`run_` and a ULID, whose 128 bits are the run's trace id."""
