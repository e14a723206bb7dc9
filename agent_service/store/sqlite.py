"""The run store on SQLite: entry, state, brief and items of a commit are rows of one transaction.

Everything is encoded before the writer gets it, so the shared transaction stays short. A work checks before it writes,
because one that refuses after a write has its whole group rolled back and run again.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from agent_service.errors import Damaged
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.ports import JournalPosition, RecordedCall, call_charge
from agent_service.store.database import (
    Statement,
    apply_records,
    entry_of,
    open_database,
    run_of,
    statements_of,
    store_commit,
)
from agent_service.store.messages import Beside
from agent_service.store.moving import require_runs_here
from agent_service.store.runs import LeaseCheck, RunStore, no_lease, same_wake, version_moved
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.errors import Full
from groundwork.sqlite.file import SqliteFile, microseconds

NO_LIMIT = -1
REMEMBERED_RUNS = 4096
RECENT_POSITIONS = 30_000
"""Positions searched at most for recent model calls."""
DISPATCH_WRITTEN_WITHIN_S = 1.0
"""Delay before `mark_dispatched` is written, unless a commit of the run takes it along."""


class SqliteStore(RunStore):
    """New runs need the lease. Entries of runs that are here are stored also while the bus is away, because nothing of
    them leaves before the lease is held again. Nothing is stored once another agent has the bus."""

    def __init__(self, database: SqliteFile, held: LeaseCheck = no_lease) -> None:
        super().__init__(database, held)
        self._runs: dict[str, Run] = {}
        """Open runs as this process has committed them, the longest known first."""
        self._dispatched: dict[str, int] = {}
        self._dispatched_later: asyncio.TimerHandle | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        folder: Path,
        held: LeaseCheck = no_lease,
        *,
        reserve: bool = False,
    ) -> AsyncIterator[Self]:
        """Opens the store in `folder`, made if absent, for one process alone. Raises TryAgain, and Misconfigured, also
        for one whose runs have moved."""
        await require_runs_here(folder)
        async with open_database(folder, reserve=reserve) as database:
            store = cls(database, held)
            try:
                yield store
            finally:
                store._write_dispatched()

    async def accept(self, commit: Commit, digest: str) -> str:
        await self._require_lease()
        statements = statements_of(commit, digest=digest)
        run_id = await self.database.write(partial(self._accept, digest, commit, statements))
        if run_id == commit.run_id:
            self._runs.setdefault(run_id, Run(state=commit.state, head=commit.entry.hash))
        return run_id

    async def load(self, run_id: str, version: int = 0) -> Run | None:
        if (run := self._runs.get(run_id)) and run.state.version >= version:
            return run
        self._quarantine.check(run_id)
        rows = await self.database.read(self._sql["load"], (run_id,))
        try:
            return run_of(run_id, rows) if rows else None
        except Damaged as error:
            self.quarantine(error)
            raise

    def quarantine(self, found: Damaged) -> None:
        super().quarantine(found)
        self._runs.pop(found.run_id, None)

    async def row(self, run_id: str) -> tuple[Any, ...]:
        return next(iter(await self.database.read(self._sql["row"], (run_id,))), ())

    async def commit(self, commit: Commit) -> None:
        run_id = commit.entry.run_id
        self._quarantine.check(run_id)
        try:
            await self._held()
        except TryAgain:
            pass  # it was held before, and nothing leaves until it is held again
        except Failure as error:
            raise TryAgain(str(error)) from error
        statements = statements_of(commit, dispatched_up_to=self._dispatched.pop(run_id, 0))
        if not await self.database.write(lambda connection: store_commit(connection, statements)):
            self._runs.pop(run_id, None)
            raise version_moved(commit.entry)
        if commit.state.final:
            self._runs.pop(run_id, None)
            return
        self._runs[run_id] = Run(state=commit.state, head=commit.entry.hash)
        if len(self._runs) > REMEMBERED_RUNS:
            del self._runs[next(iter(self._runs))]

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Written later, in a batch; a crash may lose it."""
        self._dispatched[run_id] = seq
        if self._dispatched_later is None:
            loop = asyncio.get_running_loop()
            self._dispatched_later = loop.call_later(DISPATCH_WRITTEN_WITHIN_S, self._write_dispatched)

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        rows = await self.database.read(self._sql["undispatched"], (limit,))
        return [(run_id, range(told + 1, version + 1)) for run_id, told, version in rows]

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        rows = await self.database.read(self._sql["entries"], (run_id, after, NO_LIMIT if limit is None else limit))
        return [entry_of(run_id, row) for row in rows]

    def newest(self) -> int:
        ((position,),) = self.database.look_up(self._sql["newest"])
        return int(position)

    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        return [JournalPosition(*row) for row in self.database.look_up(self._sql["places"], (after, limit))]

    async def positions(self, run_id: str) -> tuple[int, ...]:
        return tuple(position for (position,) in await self.database.read(self._sql["positions"], (run_id,)))

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
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

    async def put(self, *records: Beside, after: int | None) -> Sequence[Beside]:
        """On a full disk one at a time, because a reserve may do for each alone."""
        try:
            await self.database.write(partial(apply_records, records), makes_room=True)
        except Full:
            if len(records) == 1:
                raise
            for record in records:
                await self.put(record, after=after)
        return records

    async def total_bytes(self) -> int:
        return await self.database.used()

    def _accept(
        self, digest: str, commit: Commit, statements: Sequence[Statement], connection: sqlite3.Connection
    ) -> str:
        wake_id = commit.state.wake_id
        for run_id, known in connection.execute(self._sql["wake"], (wake_id,)).fetchall():
            return same_wake(wake_id, run_id, same=known == digest)
        if not store_commit(connection, statements):
            raise version_moved(commit.entry)
        return commit.run_id

    def _write_dispatched(self) -> None:
        self._dispatched_later, dispatched = None, tuple(self._dispatched.items())
        self._dispatched.clear()
        if dispatched:
            self.database.later(lambda connection: connection.executemany(self._sql["tell"], dispatched))
