"""What an archive holds of a store, and how it is stored anew: each run's entries are decided again, and appended.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ a database, or the log of many

A log holds what is there already as it is, so that an interrupted restore is finished by the same command.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from agent_service.archive.runs import ArchivedRun, Said
from agent_service.run.changes import retell
from agent_service.run.in_hand import own_turn
from agent_service.run.journal import Commit, Entry, flaw_in_chain, growth_of
from agent_service.store.retention import SqliteGraves
from agent_service.store.rows import Writing, row_of_run, rows_of
from agent_service.store.shared_log import facts as words
from agent_service.store.shared_log.facts import (
    LEVEL,
    ROW,
    BareSaid,
    GoneSaid,
    HaltSaid,
    RunRow,
    SeenSaid,
    encoded,
    fact_of,
    said_in,
)
from agent_service.store.shared_log.index import Indexing
from agent_service.store.side_tables import halt_of
from agent_service.store.sql.database import load_queries
from agent_service.store.sqlite import SqliteStore
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.service.machine import utc_now
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas import subjects

AT_ONCE = 500
TOGETHER = 32
"""Runs whose entries are on their way to a log at the same time."""


async def stored_runs(store: SqliteStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """By id; all, or `only` that one."""
    sql, after = load_queries()["archived"], ""
    while rows := await store.database.read(sql, (after, AT_ONCE, only or None)):
        for row in rows:
            yield _run(await store.positions(row[0]), *row)
        after = rows[-1][0]


def _run(
    positions: tuple[int, ...], run_id: str, wake_id: str, digest: str, accepted_at: int, *rest: Any
) -> ArchivedRun:
    status, version, head, told, artifacts_gone = rest
    return ArchivedRun(
        run_id=run_id,
        wake_id=wake_id,
        digest=digest,
        accepted_at=instant(accepted_at),
        status=status,
        version=version,
        head=head.hex(),
        dispatched_up_to=told,
        positions=positions,
        artifacts_gone=artifacts_gone or "",
    )


async def beside_runs(database: SqliteFile) -> list[Said]:
    """Dismissals, stops of all, tombstones, and which artifacts were deleted."""
    sql = load_queries()
    said: list[tuple[str, words.Said]] = []
    for run_id, version, person, at in await database.read(sql["all_dismissals"]):
        seen = SeenSaid(v=LEVEL, run_id=run_id, version=version, person=person, at=at)
        said.append((subjects.stored_seen(run_id), seen))
    halts = [HaltSaid(v=LEVEL, by="", halt=halt_of(row)) for row in await database.read(sql["all_halts"])]
    said += [(subjects.STORED_HALT, halt) for halt in halts]
    for run_id, version, rule, at in await database.read(sql["all_artifacts_gone"]):
        bare = BareSaid(v=LEVEL, run_id=run_id, version=version, rule=rule, at=at)
        said.append((subjects.stored_bare(run_id), bare))
    async for stone in SqliteGraves(database).every():
        said.append((subjects.stored_gone(stone.run_id), GoneSaid.of(stone, 0)))
    return [(subject, one.header[ROW].encode()) for subject, one in said]


def flaw_of(run: ArchivedRun, entries: Sequence[Entry]) -> str | None:
    if flaw := flaw_in_chain(entries):
        return flaw
    is_whole = entries and (len(entries), entries[-1].hash) == (run.version, run.head)
    return None if is_whole else f"its journal does not end with entry {run.version}"


def commits_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[Commit]:
    """The newest has all that grew. Raises ValueError, with what is wrong, for entries that cannot be followed, or that
    are not those of the run."""
    if flaw := flaw_of(run, entries):
        raise ValueError(flaw)
    commits = list[Commit]()
    for change in retell(entries):
        newest = change.entry.seq == run.version
        commit = Commit(
            entry=change.entry,
            outcome=change,
            state=change.after,
            brief=change.after.brief if newest or change.entry.seq == 1 else None,
            growth=growth_of(None, change.after) if newest else (),
            paid_usd=change.paid_usd,
            opened=change.opened,
        )
        commits.append(commit)
    return commits


class IntoDatabase:
    """The caller alone has the database open."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._writing = Writing(load_queries())
        self._some: list[Callable[[sqlite3.Connection], object]] = []

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `commits_of` does."""
        asked = run.wake_id, run.digest, microseconds(run.accepted_at)
        commits = commits_of(run, entries)
        rows = [rows_of(commit, position) for commit, position in zip(commits, run.positions, strict=True)]
        self._some.append(partial(self._writing.add, row_of_run(commits, run.dispatched_up_to), asked, rows))
        if len(self._some) >= TOGETHER:
            await self.write()

    async def add_beside(self, said: Iterable[Said]) -> None:
        indexing = Indexing()
        for subject, word in said:
            fact = StoredMessage(seq=0, subject=subject, body=b"", headers={ROW: word.decode()}, at=utc_now())
            self._some.append(partial(self._apply, indexing, fact))
        await self.write()

    async def write(self) -> None:
        some, self._some = self._some, []
        await self._database.write(lambda connection: [one(connection) for one in some])

    def _apply(self, indexing: Indexing, fact: StoredMessage, connection: sqlite3.Connection) -> None:
        indexing.apply(connection, fact)


class IntoLog:
    def __init__(self, log: SharedLog) -> None:
        self._log = log
        self._some: list[tuple[ArchivedRun, list[Commit]]] = []

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `commits_of` does, Misconfigured where the log has another run, and TryAgain."""
        self._some.append((run, commits_of(run, entries)))
        if len(self._some) >= TOGETHER:
            await self.write()

    async def write(self) -> None:
        some, self._some = self._some, []
        await asyncio.gather(*(self._append_run(*one) for one in some))

    async def add_beside(self, said: Iterable[Said]) -> None:
        for subject, word in said:
            newest = await self._log.newest(subject)
            if newest is None or newest.headers.get(ROW) != word.decode():
                await self._append(subject, b"", None, {ROW: word.decode()})

    async def _append_run(self, run: ArchivedRun, commits: Sequence[Commit]) -> None:
        """What is not fully dispatched is of one turn, which an agent queues."""
        subject = subjects.stored_run(run.wake_id, run.run_id)
        newest = await self._log.newest(subjects.stored_wake(run.wake_id))
        row, place = (said_in(RunRow, newest), newest.seq) if newest else (None, 0)
        if newest and (row is None or row.seq > len(commits) or row.head != commits[row.seq - 1].entry.hash):
            raise Misconfigured(f"the log has another entry of {subject}: use a stream made anew")
        for commit in commits[row.seq if row else 0 :]:
            by = own_turn(run.run_id, run.version) if commit.entry.seq > run.dispatched_up_to else ""
            fact = fact_of(commit, by, whole=commit.entry.seq == run.version)
            body = encoded(fact)
            told = run.dispatched_up_to if commit.entry.seq == run.version else 0
            row = RunRow.of(commit, row, by=by, told=told, digest=run.digest, whole_at=0, size=len(body))
            place = await self._append(subject, body, place, row.header)

    async def _append(self, subject: str, body: bytes, after: int | None, headers: Mapping[str, str]) -> int:
        try:
            return await self._log.append(subject, body, after=after, headers=headers)
        except Moved as error:
            raise Misconfigured(
                f"another process writes to {subject}: stop all agents that share this store, then run this again"
            ) from error


async def copy_into_log(log: SharedLog, database: SqliteFile) -> None:
    """All that is in the database. Raises as IntoLog does."""
    into, store = IntoLog(log), SqliteStore(database)
    async for run in stored_runs(store):
        await into.add(run, await store.entries(run.run_id))
    await into.write()
    await into.add_beside(await beside_runs(database))
