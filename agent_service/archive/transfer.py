"""Runs on their way: out of a store, and from their entries into a database or a shared log.

    store ─▶ runs and their entries ─▶ archive ─▶ entries, decided again ─▶ a database, or a shared log

A log keeps what it has already, so the same command finishes an interrupted restore.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from agent_service.archive.contents import ArchivedRun
from agent_service.archive.retention import ArtifactTombstone
from agent_service.run.inbound import turn_id
from agent_service.run.journal import Commit, Entry, flaw_in_chain, growth_of
from agent_service.run.ports import Dismissal
from agent_service.run.replay import replay
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
from agent_service.store.rows import (
    Statement,
    halt_of,
    new_run_columns,
    run_columns,
    statements_of,
    store_commit,
    tombstone_of,
)
from agent_service.store.sqlite import RunStore
from groundwork.nats.shared_log import AppendConflict, SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, instant
from schemas import subjects
from schemas.values import replace

AT_ONCE = 500
TOGETHER = 32
"""Runs that are written at once, or are on their way to a log."""


async def stored_runs(store: RunStore, *, only: str = "") -> AsyncIterator[ArchivedRun]:
    """All runs by id, or `only` that one."""
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


def flaw_of(run: ArchivedRun, entries: Sequence[Entry]) -> str | None:
    if flaw := flaw_in_chain(entries):
        return flaw
    newest = entries[-1] if entries else None
    is_whole = newest and (newest.run_id, len(entries), newest.hash) == (run.run_id, run.version, run.head)
    return None if is_whole else f"its journal does not end with entry {run.version}"


def commits_of(run: ArchivedRun, entries: Sequence[Entry]) -> list[Commit]:
    """Commits of a journal, decided again; the newest has every growing item. Raises ValueError for entries that cannot
    be followed, or belong to another run."""
    if flaw := flaw_of(run, entries):
        raise ValueError(flaw)
    first, *commits = replay(entries)
    commits.insert(0, replace(first, brief=first.state.brief))
    newest = commits[-1].state
    commits[-1] = replace(commits[-1], brief=newest.brief, growth=growth_of(None, newest))
    return commits


async def load_runs(database: SqliteFile, runs: Iterable[tuple[ArchivedRun, Sequence[Entry]]]) -> dict[str, str]:
    """Writes runs into a database that the caller alone has open. Returns why runs were left out, by run."""
    left_out, batch = dict[str, str](), list[list[Statement]]()

    async def write() -> None:
        await database.write(lambda connection: [store_commit(connection, *statements) for statements in batch])
        batch.clear()

    for run, entries in runs:
        try:
            batch.append(_statements(run, commits_of(run, entries)))
        except (ValueError, AssertionError, TypeError) as error:
            left_out[run.run_id] = f"its journal cannot be followed: {error}"
        if len(batch) == TOGETHER:
            await write()
    await write()
    return left_out


def _statements(run: ArchivedRun, commits: Sequence[Commit]) -> list[Statement]:
    columns = *run_columns(commits, run.dispatched_up_to), *new_run_columns(commits[0].state, run.digest)
    of_entries = [statements_of(*one) for one in zip(commits, run.positions, strict=True)]
    return [("add_run", columns), *chain(*of_entries)]


async def copy_into_log(log: SharedLog, store: RunStore) -> None:
    """Copies a whole store. Raises ValueError as `commits_of` does, Misconfigured if the log has another run, and
    TryAgain."""
    some = list[Coroutine[Any, Any, None]]()
    async for run in stored_runs(store):
        some.append(_append_run(log, run, await store.entries(run.run_id)))
        if len(some) == TOGETHER:
            await asyncio.gather(*some)
            some.clear()
    await asyncio.gather(*some)
    for record in await side_records(store):
        newest = await log.newest(record.subject)
        if newest is None or newest.headers.get(ROW) != record.text:
            await _append(log, record.subject, b"", None, record.header)


async def _append_run(log: SharedLog, run: ArchivedRun, entries: Sequence[Entry]) -> None:
    """Entries that are not dispatched belong to one turn, which an agent queues."""
    commits, subject = commits_of(run, entries), subjects.stored_run(run.wake_id, run.run_id)
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
