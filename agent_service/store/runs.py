"""The store of runs: what is the same for both carriers of entries. Abstract methods are what a carrier does itself.

`SqliteStore` is the store of one agent: entries and states are rows of its database. `SharedStore` is that of several:
entries are messages of a log, and each process has an index of them in a database. A position is the place of an entry
in the journal of all runs, by rows or by messages.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from agent_service.errors import Damaged, VersionMoved, WakeConflict
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.ports import JournalPosition, RecordedCall
from agent_service.store.index import RunIndex
from agent_service.store.records import HaltRecords, InboxRecords, RetentionRecords
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.file import SqliteFile

LeaseCheck = Callable[[], Awaitable[None]]


async def no_lease() -> None:
    return


class RunStore(RunIndex):
    """`held` checks that this process may store: it raises TryAgain while that is unknown, another Failure once another
    process has the bus. A full or locked disk, and a bus that is away, raise TryAgain; a broken disk raises Broken."""

    def __init__(self, database: SqliteFile, held: LeaseCheck = no_lease) -> None:
        super().__init__(database)
        self._held = held
        self.inbox = InboxRecords(self)
        self.halts = HaltRecords(self)
        self.retention = RetentionRecords(self)

    async def load(self, run_id: str) -> Run | None:
        """Raises Damaged for a run that cannot be read, which is in quarantine from then on."""
        self._quarantine.check(run_id)
        try:
            return await self.stored(run_id)
        except Damaged:
            raise
        except ValueError as error:
            damage = Damaged(run_id, "its state or brief")
            self.quarantine(damage)
            raise damage from error

    def quarantine(self, found: Damaged) -> None:
        """Leaves the run alone until the next start: not due, not queued, no commits."""
        self._quarantine.add(found)

    async def run_by_wake(self, wake_id: str) -> str | None:
        return next((run_id for run_id, _ in self.database.look_up(self._sql["wake"], (wake_id,))), None)

    async def _require_lease(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error

    @abstractmethod
    async def accept(self, commit: Commit, digest: str) -> str:
        """Stores a new run and returns its id; for a known wake id with the same digest, that run's. Raises
        WakeConflict for another digest, VersionMoved for a run id of another wake, and TryAgain."""

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Raises VersionMoved when another entry has its place, TryAgain, and Damaged for a run in quarantine."""

    @abstractmethod
    async def stored(self, run_id: str) -> Run | None:
        """Raises ValueError (its kind Damaged) for one that cannot be read, and NewerVersion."""

    @abstractmethod
    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Entries of the run with `seq` > `after`, in order."""

    @abstractmethod
    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        """Positions of entries behind `after`, in order."""

    @abstractmethod
    async def positions(self, run_id: str) -> tuple[int, ...]:
        """Positions of the run's entries."""

    @abstractmethod
    def newest(self) -> int:
        """The newest position."""

    @abstractmethod
    async def row(self, run_id: str) -> tuple[Any, ...]:
        """Version, status, `due_at`, summary and goal as they are stored beside the run's state."""

    @abstractmethod
    async def artifacts(self) -> dict[str, Sequence[str]]:
        """Paths of the artifacts that are kept, by run; none for a run that cannot be read."""

    @abstractmethod
    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        """Model calls that entries at or after `since` tell of, in order."""

    @abstractmethod
    async def total_bytes(self) -> int:
        """Bytes that all runs take."""

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Notes that entries up to `seq` are dispatched, unless a message stands for those that are not."""

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        """Runs with entries that may not be dispatched, and that no message drives. Oldest first."""
        del limit
        return ()

    async def caught_up(self) -> None:
        """Waits until the database has everything that any process has stored by now."""

    async def may_call_model(self, run_id: str, call: int) -> bool:
        """False while another process may be making model call `call`, which was asked for before."""
        del run_id, call
        return True

    async def is_current(self, run_id: str, version: int) -> bool:
        """True if `version` is the newest entry of any process. Raises TryAgain."""
        del run_id, version
        return True

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        """True if another process has reserved model call `call` after entry `since`, as known after `load`."""
        del run_id, call, since
        return False


def same_wake(wake_id: str, run_id: str, *, same: bool) -> str:
    """Returns the run that a known wake names. Raises WakeConflict for another request."""
    if not same:
        raise WakeConflict(wake_id, run_id)
    return run_id


def version_moved(entry: Entry) -> VersionMoved:
    return VersionMoved(f"run {entry.run_id} is not at version {entry.seq - 1}: load it and decide again")
