"""The rows of one gateway's database, as facts that several gateways would have written of them.

Open calls belong to that gateway's store id, which is no member, so the others adopt them. A plugin's call that was not
seen to end is in doubt for them. Writing the rows twice changes nothing.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import Any

from ductile_gateway.store.agent_keys import Pin
from ductile_gateway.store.restored import Restored
from ductile_gateway.store.shared import artifact_names, calls, owed, pins, restored_row
from ductile_gateway.store.shared.artifact_names import Artifact
from ductile_gateway.store.shared.calls import Call
from ductile_gateway.store.shared.owed import Owed
from ductile_gateway.store.shared.rows import (
    ARTIFACTS,
    CALL,
    NOTIFICATION,
    RECEIVED,
    Change,
    Row,
    Rows,
    framed,
    subject_of,
)
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

Told = tuple[str, bytes]

AT_ONCE = 500

_CALLS = """
SELECT position, calls.key, digest, trace_id, span_id, sampled, run_id, step, attempt, task, round, route, may_repeat,
    deadline_at, COALESCE(answer, request, x''), begun_at, calls.job_id, way, newest, completed_at, published,
    overdue.job_id, overdue.pipeline, overdue.since
FROM calls LEFT JOIN overdue ON overdue.key = calls.key
WHERE position > ? ORDER BY position LIMIT ?
"""
_CALL = (
    *("key", "digest", "trace_id", "span_id", "sampled", "run_id", "step", "attempt", "task", "round", "route"),
    *("may_repeat", "deadline_at", "body", "begun_at", "job_id", "way", "newest", "completed_at", "published"),
    *("late_job", "late_pipeline", "late_since"),
)
_OWED = """
SELECT position, target, lane, key, run_id, type, url, body, accepted_at, due_at, tries, why, outcome, settled_at
FROM outbox WHERE position > ? ORDER BY position LIMIT ?
"""
_OWED_NAMES = (
    *("target", "lane", "key", "run_id", "type", "url", "body", "accepted_at", "due_at", "tries", "why", "outcome"),
    "settled_at",
)
_ARTIFACTS = "SELECT run_id, name, key, place, COALESCE(sha256, ''), bytes FROM artifacts ORDER BY run_id, name"
_RECEIVED = "SELECT source, identity, event_key, received_at FROM received"
_BEGUN_HERE = """
SELECT key FROM calls
WHERE answer IS NULL AND begun_at IS NULL AND may_repeat = 0 AND by <> ''
ORDER BY position LIMIT 3
"""


async def rows_of(
    file: SqliteFile, known: Sequence[Pin], restored: Restored | None, *, store: str
) -> AsyncIterator[Told]:
    """`store`: the source's id. `known`: the keys that its gateway pinned. `restored`: the backup it comes from
    itself."""
    async for row in _in_order(file, _CALLS):
        call = Call(**dict(zip(_CALL, row, strict=True)))
        by = "" if call.is_answered else store
        yield subject_of(CALL, call.key), calls.written(calls.of(call, by=by))
    for run_id, artifacts in _by_run(await file.read(_ARTIFACTS)).items():
        yield subject_of(ARTIFACTS, run_id), artifact_names.written(run_id, artifacts)
    for source, identity, event_key, received_at in await file.read(_RECEIVED):
        columns = {"source": source, "identity": identity, "event_key": event_key, "received_at": received_at}
        yield subject_of(RECEIVED, source, identity), framed(columns)
    async for row in _in_order(file, _OWED):
        one = Owed(**dict(zip(_OWED_NAMES, row, strict=True)), by=store)
        yield subject_of(NOTIFICATION, one.target, one.key), owed.written(one)
    if known:
        yield pins.SUBJECT, pins.written(known)
    if restored:
        yield restored_row.RESTORED_SUBJECT, restored_row.written_restored(restored)


async def begun_here(file: SqliteFile) -> Sequence[str]:
    """Calls of plugins that write and were not seen to end: only where they were begun can they be looked for."""
    return [key for (key,) in await file.read(_BEGUN_HERE)]


async def counted(file: SqliteFile) -> dict[str, int]:
    tables = {CALL: "calls", RECEIVED: "received", NOTIFICATION: "outbox"}
    return {kind: (await file.read(f"SELECT count(*) FROM {table}"))[0][0] for kind, table in tables.items()}  # noqa: S608


def kept_alone(connection: sqlite3.Connection) -> None:
    for change in ("UPDATE calls SET by = ''", "UPDATE outbox SET by = ''", "DELETE FROM pins", "DELETE FROM replica"):
        connection.execute(change)


async def _in_order(file: SqliteFile, statement: str) -> AsyncIterator[tuple[Any, ...]]:
    position = 0
    while rows := await file.read(statement, (position, AT_ONCE)):
        for position, *row in rows:  # noqa: B007 - the last one is where the next stretch begins
            yield tuple(row)


def _by_run(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Artifact]]:
    found: dict[str, list[Artifact]] = {}
    for run_id, *artifact in rows:
        found.setdefault(run_id, []).append(Artifact(*artifact))
    return found


TOGETHER = 64


def rows_without_copy(log: SharedLog) -> Rows:
    return Rows(log, _no_copy)


async def refuse_a_stream_with_rows(log: SharedLog) -> None:
    if await log.end():
        raise Misconfigured(
            f"the stream {subjects.STREAM_LEDGER} is not empty: a ledger can be moved only into an empty one. Make it "
            f"anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"
        )


async def bring(rows: Rows, told: Sequence[Told]) -> int:
    """How many are there now. Raises Misconfigured where one is not as it was, and TryAgain."""
    for some in _bunches(told):
        await asyncio.gather(*(rows.change(subject, _unless_there(body)) for subject, body in some))
    for some in _bunches(told):
        there = await asyncio.gather(*(rows.read(subject) for subject, _ in some))
        for (subject, body), row in zip(some, there, strict=True):
            if row.body != body:
                raise Misconfigured(f"{subject} is in the stream, but not as it was: somebody else writes there")
    return len(told)


def _bunches(told: Sequence[Told]) -> Iterator[Sequence[Told]]:
    for is_owed, some in groupby(told, key=lambda one: one[0].startswith(f"{subjects.LEDGER}.{NOTIFICATION}.")):
        alike = list(some)
        size = 1 if is_owed else TOGETHER
        yield from (alike[at : at + size] for at in range(0, len(alike), size))


def _unless_there(body: bytes) -> Change:
    def change(row: Row) -> bytes | None:
        return body if row.body is None else None

    return change


async def _no_copy(seq: int) -> None:
    del seq
