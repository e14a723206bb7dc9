"""The run store and archive on SQLite: entry, state, brief and items of one commit are rows of one transaction.

Everything is encoded before the writer gets it, so that the shared transaction stays short. A work looks before it
writes: one that refuses after it wrote would have its whole group rolled back and run again.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from agent_service.archive.retention import ArtifactTombstone, Tombstone
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, VersionMoved, WakeConflict
from agent_service.run.changes import RecordedCall, call_charge
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.lines import EVERY_RUN, RunFilter, RunLine, Sum
from agent_service.run.ports import JournalPosition
from agent_service.store.database import load_queries, open_database
from agent_service.store.listing import read_list, read_sums
from agent_service.store.messages import IndexWriter, SideRecord
from agent_service.store.records import HaltRecords, InboxRecords, RetentionRecords, UsageRecords
from agent_service.store.rows import (
    CommitRows,
    EntryWriter,
    Quarantine,
    RunColumns,
    entry_of,
    new_run_columns,
    row_of_run,
    rows_of,
    run_of,
    tombstone_of,
)
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.errors import Full
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from groundwork.sqlite.group_commit import OnCommit, ignore
from schemas.values import replace

LeaseCheck = Callable[[], Awaitable[None]]

NO_LIMIT = -1
LATE_PLACES = 30_000
"""Positions that are looked at, at most, for calls of late."""
TOLD_WITHIN_S = 1.0
"""How much later it is written how far a run has been told, unless a commit of the run takes it along."""


async def no_lease() -> None:
    return


class RunStore:
    """The truth of one agent. A full or locked disk raises TryAgain, a broken one Broken.

    `held` says whether its agent has the bus: it raises TryAgain while that is unknown, another Failure once another
    agent has it. New work is taken only while that is sure. What is decided for a run that is here already is written
    also while the bus is away, for nothing of it leaves before the lease is held again; nothing at all is written once
    another agent has the bus.
    """

    calls_model_at_once = True
    """Whether who commits an entry makes the model call that it asks for."""
    me = ""

    def __init__(self, database: SqliteFile, held: LeaseCheck = no_lease) -> None:
        self.database = self._database = database
        self._held = held
        self._sql = load_queries()
        self._writing = EntryWriter()
        self._indexing = IndexWriter()
        self.inbox = InboxRecords(self)
        self.halts = HaltRecords(self)
        self.usage = UsageRecords(self)
        self.retention = RetentionRecords(self)
        self._quarantine = Quarantine()
        self._told: dict[str, int] = {}
        self._told_later: asyncio.TimerHandle | None = None
        self._searching = asyncio.Lock()
        """One search looks into rows at a time: the others wait, and not those who read a run."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        folder: Path,
        held: LeaseCheck = no_lease,
        on_commit: OnCommit = ignore,
        *,
        reserve: bool = False,
    ) -> AsyncIterator[Self]:
        """The store in `folder`, made if absent, for one process alone. Raises Misconfigured and TryAgain."""
        async with open_database(folder, on_commit, reserve=reserve) as database:
            store = cls(database, held)
            try:
                yield store
            finally:
                store._write_told()

    async def accept(self, commit: Commit, digest: str) -> str:
        """Stores a new run and returns its id; for a known wake id with the same digest, that run's. Raises
        WakeConflict for another digest, VersionMoved where another wake has taken the run id, and TryAgain."""
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing new is taken: {error}") from error
        work = partial(self._accept, digest, commit, row_of_run((commit,)), rows_of(commit))
        return await self._database.write(work)

    async def load(self, run_id: str) -> Run | None:
        """Raises Damaged for a run that cannot be read, which is in quarantine from then on."""
        self._quarantine.check(run_id)
        try:
            return await self.stored(run_id)
        except Damaged:
            raise
        except ValueError as error:
            self.quarantine(Damaged(run_id, "its state or brief"))
            raise Damaged(run_id, "its state or brief") from error

    async def stored(self, run_id: str) -> Run | None:
        """Raises ValueError for one that cannot be read."""
        rows = await self._database.read(self._sql["load"], (run_id,))
        return run_of(rows) if rows else None

    async def row(self, run_id: str) -> tuple[Any, ...]:
        """Version, status, `due_at`, summary and goal, as its row says."""
        return next(iter(await self._database.read(self._sql["row"], (run_id,))), ())

    async def tombstone(self, run_id: str) -> Tombstone | None:
        rows = self._database.look_up(self._sql["tombstone"], (run_id,))
        return tombstone_of(rows[0]) if rows else None

    async def artifacts_gone(self, run_id: str) -> ArtifactTombstone | None:
        for at, rule in self._database.look_up(self._sql["artifacts_gone"], (run_id,)):
            return ArtifactTombstone(run_id=run_id, gone_at=instant(at), rule=rule)
        return None

    def quarantine(self, found: Damaged) -> None:
        """Leave the run alone until the next start: not due, not queued, no commits."""
        self._quarantine.add(found)

    async def artifacts(self) -> dict[str, Sequence[str]]:
        """By run, of those that have any that are kept."""
        return {of: json.loads(paths) for of, paths in await self._database.read(self._sql["artifacts"])}

    async def commit(self, commit: Commit) -> None:
        """Raises VersionMoved when another entry has its place, TryAgain, and Damaged for a run in quarantine."""
        run_id = commit.entry.run_id
        self._quarantine.check(run_id)
        try:
            await self._held()
        except TryAgain:
            pass  # it was held before, and nothing leaves until it is held again
        except Failure as error:
            raise TryAgain(str(error)) from error
        run = row_of_run((commit,), self._told.pop(run_id, 0))
        if not await self._database.write(partial(self._writing.advance, run, rows_of(commit))):
            raise moved(commit.entry)

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Entries up to `seq` are dispatched. Written later, in a batch; a crash may lose it."""
        self._told[run_id] = seq
        if self._told_later is None:
            self._told_later = asyncio.get_running_loop().call_later(TOLD_WITHIN_S, self._write_told)

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        """Runs, oldest first, with entries that are not known to be dispatched, and that no message drives."""
        rows = await self._database.read(self._sql["undispatched"], (limit,))
        return [(run_id, range(told + 1, version + 1)) for run_id, told, version in rows]

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        rows = await self._database.read(self._sql["due"], (microseconds(now), limit + len(self._quarantine)))
        return self._quarantine.without(run_id for (run_id,) in rows)

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        rows = await self._database.read(self._sql["entries"], (run_id, after, NO_LIMIT if limit is None else limit))
        return [entry_of(run_id, row) for row in rows]

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        return [entry_of(run_id, row) for row in await self._database.read(self._sql["signals"], (run_id, signal_id))]

    def version(self, run_id: str) -> int:
        return sum(version for (version,) in self._database.look_up(self._sql["version"], (run_id,)))

    def head(self, run_id: str) -> tuple[int, str]:
        ((version, head),) = self._database.look_up(self._sql["head"], (run_id,))
        return version, head.hex()

    def newest(self) -> int:
        ((position,),) = self._database.look_up(self._sql["newest"])
        return int(position)

    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        return [JournalPosition(*row) for row in self._database.look_up(self._sql["places"], (after, limit))]

    async def positions(self, run_id: str) -> tuple[int, ...]:
        """Of its entries, in the journal of all runs."""
        return tuple(position for (position,) in await self._database.read(self._sql["positions"], (run_id,)))

    async def runs(self, wanted: RunFilter = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        async with self._searching if wanted.text or wanted.tool else contextlib.nullcontext():
            lines = await read_list(self._database, self._sql, wanted, limit=limit, before=before)
        return [replace(line, damaged=self._quarantine.why(line.run_id) or line.damaged) for line in lines]

    async def sums(self, day: date) -> Sequence[Sum]:
        return await read_sums(self._database, self._sql, day)

    async def queued(self, limit: int) -> Sequence[str]:
        rows = self._database.look_up(self._sql["queued"], (limit + len(self._quarantine),))
        return self._quarantine.without(run_id for (run_id,) in rows)

    async def run_by_wake(self, wake_id: str) -> str | None:
        return next((run_id for run_id, _ in self._database.look_up(self._sql["wake"], (wake_id,))), None)

    async def open_or_changed(self, since: datetime) -> Sequence[str]:
        """Runs that have not ended, and those with an entry at or after `since`."""
        rows = await self._database.read(self._sql["open_or_changed"], (microseconds(since),))
        return self._quarantine.without(run_id for (run_id,) in rows)

    async def changed_since(self, since: datetime) -> Sequence[str]:
        """Runs with an entry at or after `since`."""
        rows = await self._database.read(self._sql["changed_since"], (microseconds(since),))
        return self._quarantine.without(run_id for (run_id,) in rows)

    async def waiting_for_budget(self) -> Sequence[str]:
        return self._quarantine.without(
            run_id for (run_id,) in await self._database.read(self._sql["waiting_for_budget"])
        )

    async def counts(self) -> dict[Status, int]:
        return {Status(status): runs for status, runs in self._database.look_up(self._sql["counts"])}

    async def caught_up(self) -> None:
        return

    async def may_call_model(self, run_id: str, call: int) -> bool:
        """Whether no other process may be making model call `call`, which was asked for before."""
        del run_id, call
        return True

    async def is_current(self, run_id: str, version: int) -> bool:
        """Whether `version` is the newest entry, wherever it was committed. Raises TryAgain."""
        del run_id, version
        return True

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        """Whether another process has reserved model call `call` after entry `since`, by what is known after `load`."""
        del run_id, call, since
        return False

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        rows = await self._database.read(self._sql["calls"], (LATE_PLACES, microseconds(since)))
        entries = [entry_of(run_id, row) for run_id, *row in rows]
        return [(entry.at, entry.run_id, call) for entry in entries if (call := call_charge(entry.decoded()))]

    async def place_of(self, subject: str) -> int:
        del subject
        return 0

    async def say(self, *words: SideRecord, after: int | None) -> Sequence[SideRecord]:
        """On a full disk one at a time: a reserve may do for each alone."""
        try:
            await self._database.write(partial(self._put_words, words), makes_room=True)
        except Full:
            if len(words) == 1:
                raise
            for word in words:
                await self.say(word, after=after)
        return words

    async def purge(self, wake_id: str, run_id: str) -> None: ...

    async def total(self) -> int:
        return await self._database.used()

    def _put_words(self, words: Iterable[SideRecord], connection: sqlite3.Connection) -> None:
        for word in words:
            self._indexing.say(connection, word)

    def _accept(
        self, digest: str, commit: Commit, run: RunColumns, rows: CommitRows, connection: sqlite3.Connection
    ) -> str:
        wake_id = commit.state.wake_id
        for run_id, known in connection.execute(self._sql["wake"], (wake_id,)).fetchall():
            return the_same(wake_id, run_id, known == digest)
        if not self._writing.add(run, new_run_columns(commit.state, digest), (rows,), connection):
            raise moved(commit.entry)
        return commit.entry.run_id

    def _write_told(self) -> None:
        self._told_later, told = None, tuple(self._told.items())
        self._told.clear()
        if told:
            self._database.later(partial(self._tell, told))

    def _tell(self, told: Iterable[tuple[str, int]], connection: sqlite3.Connection) -> None:
        connection.executemany(self._sql["tell"], told)


def the_same(wake_id: str, run_id: str, same: bool) -> str:
    """The run that a known wake names. Raises WakeConflict for another request."""
    if not same:
        raise WakeConflict(wake_id, run_id)
    return run_id


def moved(entry: Entry) -> VersionMoved:
    return VersionMoved(f"run {entry.run_id} is not at version {entry.seq - 1}: load it and decide again")
