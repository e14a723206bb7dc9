"""What an archive holds of a store, and how it is stored anew: each run's entries are decided again, and appended.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ a database, or the log of many

A log holds what is there already as it is, so that an interrupted restore is finished by the same command.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from agent_service.archive.retention import ArtifactsGone
from agent_service.archive.runs import ArchivedRun
from agent_service.run.arrival import own_turn
from agent_service.run.changes import retell
from agent_service.run.journal import Commit, Entry, flaw_in_chain, growth_of
from agent_service.run.ports import Dismissal
from agent_service.store.database import load_queries
from agent_service.store.rows import Writing, halt_of, row_of_run, rows_of, tombstone_of
from agent_service.store.sqlite import RunStore
from agent_service.store.words import (
    LEVEL,
    ROW,
    BareSaid,
    GoneSaid,
    HaltSaid,
    RunRow,
    SeenSaid,
    Word,
    encoded,
    fact_of,
    row_in,
)
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas import subjects

AT_ONCE = 500
TOGETHER = 32
"""Runs that are written at once, or are on their way to a log."""


async def stored_runs(store: RunStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """By id; all, or `only` that one."""
    sql, after = load_queries()["archived"], ""
    while rows := await store.database.read(sql, (after, AT_ONCE, only or None)):
        for run_id, wake_id, digest, accepted_at, status, version, head, told, artifacts_gone in rows:
            yield ArchivedRun(
                run_id=run_id,
                wake_id=wake_id,
                digest=digest,
                accepted_at=instant(accepted_at),
                status=status,
                version=version,
                head=head.hex(),
                dispatched_up_to=told,
                positions=await store.positions(run_id),
                artifacts_gone=artifacts_gone or "",
            )
        after = rows[-1][0]


async def beside_runs(store: RunStore) -> list[Word]:
    """Dismissals, stops of all, tombstones, and which artifacts were deleted."""
    sql, read = load_queries(), store.database.read
    words = list[Word]()
    for run_id, version, by, at in await read(sql["all_dismissals"]):
        seen = Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
        words.append(SeenSaid(v=LEVEL, dismissal=seen))
    words += [HaltSaid(v=LEVEL, by="", halt=halt_of(row)) for row in await read(sql["all_halts"])]
    for run_id, rule, at in await read(sql["all_artifacts_gone"]):
        words.append(BareSaid(v=LEVEL, gone=ArtifactsGone(run_id=run_id, gone_at=instant(at), rule=rule)))
    words += [GoneSaid(v=LEVEL, stone=tombstone_of(row), version=0) for row in await read(sql["tombstones"])]
    return words


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
        self._writing = Writing()
        self._some: list[Callable[[sqlite3.Connection], object]] = []

    async def add(self, run: ArchivedRun, entries: Sequence[Entry]) -> None:
        """Raises ValueError as `commits_of` does."""
        commits = commits_of(run, entries)
        asked = run.wake_id, run.digest, microseconds(run.accepted_at), commits[0].state.brief.goal
        rows = [rows_of(commit, position) for commit, position in zip(commits, run.positions, strict=True)]
        self._some.append(partial(self._writing.add, row_of_run(commits, run.dispatched_up_to), asked, rows))
        if len(self._some) >= TOGETHER:
            await self.write()

    async def write(self) -> None:
        some, self._some = self._some, []
        await self._database.write(lambda connection: [one(connection) for one in some])


async def copy_into_log(log: SharedLog, store: RunStore) -> None:
    """All of the store. Raises ValueError as `commits_of` does, Misconfigured where the log has another run, and
    TryAgain."""
    some = list[Coroutine[Any, Any, None]]()
    async for run in stored_runs(store):
        some.append(_append_run(log, run, await store.entries(run.run_id)))
        if len(some) == TOGETHER:
            await asyncio.gather(*some)
            some.clear()
    await asyncio.gather(*some)
    for word in await beside_runs(store):
        newest = await log.newest(word.subject)
        if newest is None or newest.headers.get(ROW) != word.text:
            await _append(log, word.subject, b"", None, word.header)


async def _append_run(log: SharedLog, run: ArchivedRun, entries: Sequence[Entry]) -> None:
    """What is not fully dispatched is of one turn, which an agent queues."""
    commits, subject = commits_of(run, entries), subjects.stored_run(run.wake_id, run.run_id)
    newest = await log.newest(subjects.stored_wake(run.wake_id))
    row, place = (row_in(newest), newest.seq) if newest else (None, 0)
    if newest and (row is None or row.seq > len(commits) or row.head != commits[row.seq - 1].entry.hash):
        raise Misconfigured(f"the log has another entry of {subject}: use a stream made anew")
    for commit in commits[row.seq if row else 0 :]:
        by = own_turn(run.run_id, run.version) if commit.entry.seq > run.dispatched_up_to else ""
        newest_one = commit.entry.seq == run.version
        body = encoded(fact_of(commit, by, whole=newest_one))
        told = run.dispatched_up_to if newest_one else 0
        row = RunRow.of(commit, row, by=by, told=told, digest=run.digest, whole_at=0, size=len(body))
        place = await _append(log, subject, body, place, row.header)


async def _append(log: SharedLog, subject: str, body: bytes, after: int | None, headers: Mapping[str, str]) -> int:
    try:
        return await log.append(subject, body, after=after, headers=headers)
    except Moved as error:
        raise Misconfigured(
            f"another process writes to {subject}: stop all agents that share this store, then run this again"
        ) from error
