"""Runs on their way: out of a store, and from their entries into a database or a shared log.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ a database, or a shared log

A log keeps what it has already, so the same command finishes an interrupted restore.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from agent_service.archive.contents import ArchivedRun
from agent_service.archive.retention import ArtifactTombstone
from agent_service.run.inbound import turn_id
from agent_service.run.journal import Commit
from agent_service.run.ports import Dismissal
from agent_service.store.database import load_queries
from agent_service.store.messages import (
    LEVEL,
    ROW,
    ArtifactTombstoneRecord,
    DismissalRecord,
    HaltRecord,
    RunRow,
    SideRecord,
    TombstoneRecord,
    encoded,
    message_of,
    row_in,
)
from agent_service.store.rows import halt_of, statements_of, store_commit, tombstone_of
from agent_service.store.runs import RunStore
from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, instant
from schemas import subjects

AT_ONCE = 500
TOGETHER = 32
"""Runs that are written at once, or are on their way to a log."""

Followed = tuple[ArchivedRun, Sequence[Commit]]


async def stored_runs(store: RunStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """All runs by id, or `only` that one, without positions. One may have later entries than its row says, for a log
    has no snapshots."""
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
                artifacts_gone=artifacts_gone or "",
            )
        after = rows[-1][0]


async def placed(store: RunStore, run: ArchivedRun) -> ArchivedRun:
    """The run with the positions of its entries. Raises Damaged, and NewerVersion."""
    return run.model_copy(update={"positions": (await store.positions(run.run_id))[: run.version]})


async def side_records(store: RunStore) -> list[SideRecord]:
    """Dismissals, halts and tombstones."""
    sql, read = load_queries(), store.database.read
    records = list[SideRecord]()
    for run_id, version, by, at in await read(sql["all_dismissals"]):
        seen = Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
        records.append(DismissalRecord(v=LEVEL, dismissal=seen))
    records += [HaltRecord(v=LEVEL, by="", halt=halt_of(row)) for row in await read(sql["all_halts"])]
    for run_id, rule, at in await read(sql["all_artifacts_gone"]):
        gone = ArtifactTombstone(run_id=run_id, gone_at=instant(at), rule=rule)
        records.append(ArtifactTombstoneRecord(v=LEVEL, gone=gone))
    records += [TombstoneRecord(v=LEVEL, stone=tombstone_of(row), version=0) for row in await read(sql["tombstones"])]
    return records


async def load_runs(database: SqliteFile, runs: Iterable[Followed]) -> None:
    """Writes runs into a database that the caller alone has open."""
    for some in _batches(runs):
        await database.write(partial(_load, some))


def _load(some: Sequence[Followed], connection: sqlite3.Connection) -> None:
    for run, commits in some:
        for commit, position in zip(commits, run.positions, strict=True):
            statements = statements_of(
                commit, digest=run.digest, dispatched_up_to=run.dispatched_up_to, position=position
            )
            store_commit(connection, statements)


async def append_runs(log: SharedLog, runs: Iterable[Followed], records: Iterable[SideRecord]) -> None:
    """Raises Misconfigured if the log has another run, and TryAgain."""
    for some in _batches(runs):
        await asyncio.gather(*(_append_run(log, *one) for one in some))
    for record in records:
        newest = await log.newest(record.subject)
        if newest is None or newest.headers.get(ROW) != record.text:
            await _append(log, record.subject, b"", None, record.header)


def _batches(runs: Iterable[Followed]) -> Iterator[list[Followed]]:
    rest = iter(runs)
    return iter(lambda: list(islice(rest, TOGETHER)), [])


async def _append_run(log: SharedLog, run: ArchivedRun, commits: Sequence[Commit]) -> None:
    """Entries that are not dispatched belong to one turn, which an agent queues."""
    subject = subjects.stored_run(run.wake_id, run.run_id)
    newest = await log.newest(subjects.stored_wake(run.wake_id))
    row, place = (row_in(newest), newest.seq) if newest else (None, 0)
    if newest and (row is None or row.seq > len(commits) or row.head != commits[row.seq - 1].entry.hash):
        raise Misconfigured(f"the log has another entry of {subject}: use a stream made anew")
    for commit in commits[row.seq if row else 0 :]:
        by = turn_id(run.run_id, run.version) if commit.entry.seq > run.dispatched_up_to else ""
        newest_one = commit.entry.seq == run.version
        body = encoded(message_of(commit, by, whole=newest_one))
        told = run.dispatched_up_to if newest_one else 0
        row = RunRow.of(commit, row, by=by, told=told, digest=run.digest, whole_at=0, size=len(body))
        place = await _append(log, subject, body, place, row.header)


async def _append(log: SharedLog, subject: str, body: bytes, after: int | None, headers: Mapping[str, str]) -> int:
    try:
        return await log.append(subject, body, after=after, headers=headers)
    except AppendConflict as error:
        raise Misconfigured(
            f"another process writes to {subject}: stop all agents that share this store, then run this again"
        ) from error
