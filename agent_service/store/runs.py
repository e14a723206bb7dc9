"""The store of runs: entry, state, brief and items of a commit are rows of one transaction.

`SharedStore` puts messages of a log in the place of these rows, and its database is an index of them. A position is the
place of an entry in the journal of all runs, by rows or by messages.

Everything is encoded before the writer gets it, so the shared transaction stays short. A work checks before it writes,
because one that refuses after a write has its whole group rolled back and run again.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from agent_service.core.waiting import Ended
from agent_service.errors import Damaged, VersionMoved, WakeConflict
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.ports import Dismissal, JournalPosition, RecordedCall, call_charge
from agent_service.store.database import apply_records, entry_of, open_database, run_of, statements_of, store_commit
from agent_service.store.index import RunIndex
from agent_service.store.messages import LEVEL, Beside, DismissalRecord, HaltRecord
from agent_service.store.moving import require_runs_here
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.errors import Full
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas.status import Halt

LeaseCheck = Callable[[], Awaitable[None]]
NO_LIMIT = -1
REMEMBERED_RUNS = 4096
RECENT_POSITIONS = 30_000
"""Positions searched at most for recent model calls."""
DISPATCH_WRITTEN_WITHIN_S = 1.0
"""Delay before `mark_dispatched` is written, unless a commit of the run takes it along."""


async def no_lease() -> None:
    return


class RunStore(RunIndex):
    """`held` checks that this process may store: it raises TryAgain while that is unknown, another Failure once another
    process has the bus. `me`: this process among several. A full or locked disk, and a bus that is away, raise
    TryAgain; a broken disk raises Broken.

    New runs need the lease. Entries of runs that are here are stored also while the bus is away, because nothing of
    them leaves before the lease is held again. Nothing is stored once another agent has the bus.
    """

    me = ""

    def __init__(self, database: SqliteFile, held: LeaseCheck = no_lease) -> None:
        super().__init__(database)
        self._held = held
        self._runs: dict[str, Run] = {}
        """Open runs as this process has committed them, the longest known first."""
        self._dispatched: dict[str, int] = {}
        self._dispatched_later: asyncio.TimerHandle | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, folder: Path, held: LeaseCheck = no_lease, *, reserve: bool = False) -> AsyncIterator[Self]:
        """Opens the store in `folder`, made if absent, for one process alone. Raises TryAgain, and Misconfigured, also
        for one whose runs have moved."""
        await require_runs_here(folder)
        async with open_database(folder, reserve=reserve) as database:
            store = cls(database, held)
            try:
                yield store
            finally:
                store._write_dispatched()

    # entries and runs

    async def accept(self, commit: Commit, digest: str) -> str:
        """Stores a new run and returns its id; for a known wake id with the same digest, that run's. Raises
        WakeConflict for another digest, VersionMoved for a run id of another wake, and TryAgain."""
        await self._require_lease()
        wake_id, statements = commit.state.wake_id, statements_of(commit, digest=digest)

        def stored(connection: sqlite3.Connection) -> str:
            for run_id, known in connection.execute(self._sql["wake"], (wake_id,)).fetchall():
                return same_wake(wake_id, run_id, same=known == digest)
            if not store_commit(statements, connection):
                raise version_moved(commit.entry)
            return commit.entry.run_id

        run_id = await self.database.write(stored)
        if run_id == commit.entry.run_id:
            self._runs.setdefault(run_id, Run(state=commit.state, head=commit.entry.hash))
        return run_id

    async def commit(self, commit: Commit) -> None:
        """Raises VersionMoved when another entry has its place, and TryAgain."""
        run_id = commit.entry.run_id
        try:
            await self._held()
        except TryAgain:
            pass  # it was held before, and nothing leaves until it is held again
        except Failure as error:
            raise TryAgain(str(error)) from error
        statements = statements_of(commit, dispatched_up_to=self._dispatched.pop(run_id, 0))
        if not await self.database.write(partial(store_commit, statements)):
            self._runs.pop(run_id, None)
            raise version_moved(commit.entry)
        if isinstance(commit.state.waiting, Ended):
            self._runs.pop(run_id, None)
            return
        self._runs[run_id] = Run(state=commit.state, head=commit.entry.hash)
        if len(self._runs) > REMEMBERED_RUNS:
            del self._runs[next(iter(self._runs))]

    async def load(self, run_id: str, version: int = 0) -> Run | None:
        """`version`: an entry that is stored, though its commit may not have returned. Raises Damaged for a run that
        cannot be read, which is in quarantine from then on, and NewerVersion."""
        if (run := self._runs.get(run_id)) and run.state.version >= version:
            return run
        rows = await self.database.read(self._sql["load"], (run_id,))
        self._quarantine.check(run_id)  # after the read: a commit follows without another look
        try:
            return run_of(run_id, rows) if rows else None
        except Damaged as error:
            self.quarantine(error)
            raise

    def quarantine(self, found: Damaged) -> None:
        """Leaves the run alone until the next start: not due, not queued, no commits."""
        self._quarantine.add(found)
        self._runs.pop(found.run_id, None)

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Entries of the run with `seq` > `after`, in order."""
        rows = await self.database.read(self._sql["entries"], (run_id, after, NO_LIMIT if limit is None else limit))
        return [entry_of(run_id, row) for row in rows]

    def newest(self) -> int:
        """The newest position."""
        ((position,),) = self.database.look_up(self._sql["newest"])
        return int(position)

    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        """Positions of entries behind `after`, in order."""
        return [JournalPosition(*row) for row in self.database.look_up(self._sql["places"], (after, limit))]

    async def positions(self, run_id: str) -> tuple[int, ...]:
        """Positions of the run's entries."""
        return tuple(position for (position,) in await self.database.read(self._sql["positions"], (run_id,)))

    async def row(self, run_id: str) -> tuple[Any, ...]:
        """Version, status, `due_at`, summary and goal as they are stored beside the run's state."""
        return next(iter(await self.database.read(self._sql["row"], (run_id,))), ())

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        """Model calls that entries at or after `since` tell of, in order."""
        rows = await self.database.read(self._sql["calls"], (RECENT_POSITIONS, microseconds(since)))
        found = list[RecordedCall]()
        for entry in (entry_of(run_id, row) for run_id, *row in rows):
            try:
                charge = call_charge(entry.decoded())
            except Damaged as error:
                self.quarantine(error)
            else:
                found += [(entry.at, entry.run_id, charge)] if charge else []
        return found

    async def total_bytes(self) -> int:
        """Bytes that all runs take."""
        return await self.database.used()

    # what is dispatched

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Notes that entries up to `seq` are dispatched. Written later, in a batch; a crash may lose it."""
        self._dispatched[run_id] = seq
        if self._dispatched_later is None:
            loop = asyncio.get_running_loop()
            self._dispatched_later = loop.call_later(DISPATCH_WRITTEN_WITHIN_S, self._write_dispatched)

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        """Runs with entries that may not be dispatched, and that no message drives. Oldest first."""
        rows = await self.database.read(self._sql["undispatched"], (limit,))
        return [(run_id, range(dispatched + 1, version + 1)) for run_id, dispatched, version in rows]

    # records beside the journals

    async def put(self, *records: Beside, after: int | None) -> Sequence[Beside]:
        """Returns those that are stored and in the database. `after`: position in the log that must be the newest of
        the subject; None for any. On a full disk one at a time, because a reserve may do for each alone. Raises
        TryAgain."""
        try:
            await self.database.write(partial(apply_records, records), makes_room=True)
        except Full:
            if len(records) == 1:
                raise
            for record in records:
                await self.put(record, after=after)
        return records

    async def keep_halt(self, halt: Halt) -> None:
        """Replaces the record of its number. Raises TryAgain, also for a halt that does not follow the newest one."""
        record = HaltRecord(v=LEVEL, by=self.me, halt=halt)
        position = await self.newest_position(record.subject)
        if not _follows(halt, await self.newest_halt()) or not await self.put(record, after=position):
            raise TryAgain("another agent has just stopped everything, or let it go on: look again")

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Returns the dismissal in force: the earliest of the run's version."""
        await self.put(DismissalRecord(v=LEVEL, dismissal=dismissal), after=None)
        return await self.dismissal(dismissal.run_id) or dismissal

    # what other processes have stored

    async def newest_position(self, subject: str) -> int:
        """Position of the newest record of a subject, which is then in the database, too; 0 without a log. Raises
        TryAgain."""
        del subject
        return 0

    async def purge(self, wake_id: str, run_id: str) -> None:
        """Removes a run's messages from the log. Raises TryAgain."""

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

    async def _require_lease(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error

    def _write_dispatched(self) -> None:
        self._dispatched_later, dispatched = None, tuple(self._dispatched.items())
        self._dispatched.clear()
        if dispatched:
            self.database.later(lambda connection: connection.executemany(self._sql["mark_dispatched"], dispatched))


def same_wake(wake_id: str, run_id: str, *, same: bool) -> str:
    """Returns the run that a known wake names. Raises WakeConflict for another request."""
    if not same:
        raise WakeConflict(wake_id, run_id)
    return run_id


def version_moved(entry: Entry) -> VersionMoved:
    return VersionMoved(f"run {entry.run_id} is not at version {entry.seq - 1}: load it and decide again")


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number > known.number:
        return True
    is_same = (halt.number, halt.since, halt.by, halt.reason) == (known.number, known.since, known.by, known.reason)
    return is_same and progress_of(halt) >= progress_of(known)


def progress_of(halt: Halt) -> tuple[int, bool, bool]:
    return halt.number, halt.until is not None, halt.over
