"""The ledger of calls in the gateway's database. Fills the ports Ledger, Receipts and Overdue."""

import sqlite3
import sys
from collections.abc import Sequence
from datetime import datetime

from ductile_gateway.calls.call import AlreadyStarted, Answer, Asked, Intent, Past, Receipt, read_again
from ductile_gateway.ductile.watch import Job, OverdueJob
from groundwork.service.errors import NoRoom
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from groundwork.telemetry.span import Context
from schemas.events import ToolRequest

Row = tuple[
    *tuple[str, str, str, str, int, str | None, int | None, int | None, bytes | None],
    *tuple[str, int, int, str | None, int | None, bytes | None, int | None, str],
]
"""The columns as an intent has them; what only an answer has, or has not, is told from `answer`."""

_SELECT = """
SELECT key, digest, trace_id, span_id, sampled, route, may_repeat, deadline_at, request, run_id, step, attempt,
    task, round, answer, completed_at, by
FROM calls
"""
_FIND = f"{_SELECT} WHERE key = ?"
OPEN_INTENTS = f"{_SELECT} WHERE published = 0 AND answer IS NULL ORDER BY position"
_NUMBER_OPEN = "SELECT count(*) FROM calls WHERE published = 0 AND answer IS NULL"
_UNPUBLISHED_OR_RECENT = """
SELECT position FROM calls WHERE published = 0 UNION SELECT position FROM calls WHERE completed_at >= ?
"""
ANSWERS_TO_PUBLISH = f"{_SELECT} WHERE position IN ({_UNPUBLISHED_OR_RECENT}) AND answer IS NOT NULL ORDER BY position"
_INTEND = """
INSERT INTO calls (key, digest, trace_id, span_id, sampled, route, may_repeat, deadline_at, request, run_id, step,
    attempt, task, round, begun_at, way, newest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET may_repeat = excluded.may_repeat, deadline_at = excluded.deadline_at,
    route = excluded.route, digest = excluded.digest, request = excluded.request,
    begun_at = excluded.begun_at, way = excluded.way, newest = excluded.newest, job_id = NULL
WHERE answer IS NULL AND (begun_at IS NULL OR excluded.begun_at IS NULL)
"""
_ANSWER = """
INSERT INTO calls (key, digest, trace_id, span_id, sampled, run_id, step, attempt, task, round, answer, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET answer = excluded.answer, completed_at = excluded.completed_at, request = NULL,
    digest = excluded.digest,
    begun_at = NULL, job_id = NULL, way = NULL, newest = NULL
WHERE answer IS NULL
"""
_PUBLISHED = "UPDATE calls SET published = 1 WHERE key = ?"
_NAME_OF = "SELECT key = ?2 AND place = ?3 FROM artifacts WHERE run_id = ?1 AND name = ?4"
_TAKE_NAME = """
INSERT INTO artifacts (run_id, key, place, name, sha256, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, name) DO UPDATE SET sha256 = excluded.sha256, bytes = excluded.bytes
"""
_KEPT_BYTES = "SELECT COALESCE(SUM(bytes), 0) FROM artifacts WHERE run_id = ? AND key != ?"
_DIGEST_OF = "SELECT sha256 FROM artifacts WHERE run_id = ? AND name = ?"
OLD = "SELECT key FROM calls WHERE completed_at < ? AND published = 1 ORDER BY completed_at LIMIT ?"


class SqliteLedger:
    """The calls in an open store. `run_bytes`: what the artifacts of one run may take together."""

    def __init__(self, file: SqliteFile, *, run_bytes: int = sys.maxsize) -> None:
        self._file = file
        self._run_bytes = run_bytes

    async def find(self, key: str) -> Past:
        rows = self._file.look_up(_FIND, (key,))
        return past_of(rows[0]) if rows else None

    async def intend(self, intent: Intent, receipt: Receipt | None = None) -> None:
        values = _intent_values(intent, receipt)
        stored = await self._file.write(lambda connection: connection.execute(_INTEND, values).rowcount)
        if receipt and not stored:
            raise AlreadyStarted(intent.asked.key)

    def intend_soon(self, intent: Intent) -> None:
        values = _intent_values(intent, None)
        self._file.later(lambda connection: connection.execute(_INTEND, values))

    async def adopt(self, intent: Intent) -> None:
        """There is no other gateway."""

    async def answer(self, answer: Answer) -> Answer:
        values = _answer_values(answer)
        if await self._file.write(lambda connection: connection.execute(_ANSWER, values).rowcount):
            return answer
        kept = await self.find(answer.key)
        return kept if isinstance(kept, Answer) else answer

    def published(self, key: str) -> None:
        self._file.later(lambda connection: connection.execute(_PUBLISHED, (key,)))

    async def name_artifacts(
        self, run_id: str, key: str, candidates: Sequence[Sequence[str]], digests: Sequence[str], sizes: Sequence[int]
    ) -> tuple[str, ...]:
        def work(connection: sqlite3.Connection) -> tuple[str, ...]:
            self._check_room(connection, run_id, key, sum(sizes))
            places = enumerate(zip(candidates, digests, sizes, strict=True))
            return tuple(self._take_name(connection, (run_id, key, place), *artifact) for place, artifact in places)

        return await self._file.write(work)

    async def digest_of(self, run_id: str, name: str) -> str | None:
        rows = self._file.look_up(_DIGEST_OF, (run_id, name))
        return rows[0][0] if rows else None

    async def open_intents(self) -> Sequence[Intent]:
        found = map(past_of, self._file.look_up(OPEN_INTENTS, ()))
        return [past for past in found if isinstance(past, Intent)]

    def number_open(self) -> int:
        ((number,),) = self._file.look_up(_NUMBER_OPEN)
        return int(number)

    async def answers_to_publish(self, since: datetime) -> Sequence[Answer]:
        found = map(past_of, self._file.look_up(ANSWERS_TO_PUBLISH, (microseconds(since),)))
        return [past for past in found if isinstance(past, Answer)]

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        await self._file.forget(lambda connection, most: forget(connection, before, most))

    def _check_room(self, connection: sqlite3.Connection, run_id: str, key: str, more: int) -> None:
        ((kept,),) = connection.execute(_KEPT_BYTES, (run_id, key))
        check_room(kept, more, most=self._run_bytes)

    def _take_name(
        self, connection: sqlite3.Connection, owner: tuple[str, str, int], names: Sequence[str], digest: str, size: int
    ) -> str:
        for name in names:
            found = connection.execute(_NAME_OF, (*owner, name)).fetchone()
            if found is None or found[0]:
                connection.execute(_TAKE_NAME, (*owner, name, digest, size))
                return name
        raise all_are_taken(owner[1], names)


def check_room(kept: int, more: int, *, most: int) -> None:
    if kept + more > most:
        may = f"the {most >> 20} MiB that a run may keep (gateway.run_mb)"
        raise NoRoom(f"its artifacts take {kept} bytes already, and with {more} more they would take more than {may}")


def all_are_taken(key: str, names: Sequence[str]) -> ValueError:
    return ValueError(f"all names for an artifact of {key} are taken: {', '.join(names)}")


def past_of(row: Row) -> Intent | Answer:
    key, digest, trace_id, span_id, sampled, route, may_repeat, deadline_at, request = row[:9]
    run_id, step, attempt, task, number, answer, completed_at, by = row[9:]
    trace = Context(trace_id, span_id, sampled=bool(sampled))
    if answer is None:
        asked = read_again(route or "", request or b"", trace=trace)
        return Intent(asked=asked, may_repeat=bool(may_repeat), deadline_at=instant(deadline_at or 0), by=by)
    return Answer(
        key=key,
        digest=digest,
        trace=trace,
        run_id=run_id,
        step=step,
        attempt=attempt,
        body=answer,
        completed_at=instant(completed_at or 0),
        task=task,
        round=number,
        by=by,
    )


def _intent_values(intent: Intent, receipt: Receipt | None) -> tuple[object, ...]:
    asked, request = intent.asked, intent.asked.request
    begun = (asked.route, intent.may_repeat, microseconds(intent.deadline_at), asked.body)
    sent = (microseconds(receipt.begun_at), receipt.way, receipt.newest) if receipt else (None, None, None)
    return (*_named(asked), *begun, *_attempt(request), *sent)


def _answer_values(answer: Answer) -> tuple[object, ...]:
    return (*_named(answer), *_attempt(answer), answer.body, microseconds(answer.completed_at))


def _named(call: Asked | Answer) -> tuple[object, ...]:
    trace = call.trace
    return call.key, call.digest, trace.trace_id, trace.span_id, trace.sampled


def _attempt(of: ToolRequest | Answer) -> tuple[object, ...]:
    return of.run_id, of.step, of.attempt, of.task, of.round


def forget(connection: sqlite3.Connection, before: int, most: int) -> int:
    """Drop at most so many published answers that were completed before; returns how many. -1: all of them."""
    keys = connection.execute(OLD, (before, most)).fetchall()
    connection.executemany("DELETE FROM artifacts WHERE key = ?", keys)
    connection.executemany("DELETE FROM calls WHERE key = ?", keys)
    return len(keys)


_FIND_RECEIPT = "SELECT begun_at, job_id, way, newest FROM calls WHERE key = ? AND begun_at IS NOT NULL"
_ACCEPT = "UPDATE calls SET job_id = ? WHERE key = ? AND begun_at IS NOT NULL"
_DROP = "UPDATE calls SET begun_at = NULL, job_id = NULL, way = NULL, newest = NULL WHERE key = ? AND answer IS NULL"
_ADD_OVERDUE = "INSERT INTO overdue (key, job_id, pipeline, since) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_ALL_OVERDUE = "SELECT key, job_id, pipeline, since FROM overdue ORDER BY since"
_DROP_OVERDUE = "DELETE FROM overdue WHERE key = ?"


class SqliteReceipts:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def find(self, key: str) -> Receipt | None:
        # By the writer, because what was dropped soon may not be written yet.
        row = await self._file.write(lambda connection: connection.execute(_FIND_RECEIPT, (key,)).fetchone())
        return Receipt(instant(row[0]), *row[1:]) if row else None

    async def accepted(self, key: str, job_id: str) -> None:
        await self._file.write(lambda connection: connection.execute(_ACCEPT, (job_id, key)).rowcount)

    async def drop(self, key: str) -> None:
        await self._file.write(lambda connection: connection.execute(_DROP, (key,)).rowcount)

    def drop_soon(self, key: str) -> None:
        self._file.later(lambda connection: connection.execute(_DROP, (key,)))


class SqliteOverdue:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def add(self, key: str, job: Job, at: datetime) -> None:
        values = (key, job.job_id, job.pipeline, microseconds(at))
        await self._file.write(lambda connection: connection.execute(_ADD_OVERDUE, values).rowcount)

    def all(self) -> list[OverdueJob]:
        rows = self._file.look_up(_ALL_OVERDUE, ())
        return [OverdueJob(key, Job(job_id, bool(flow)), instant(since)) for key, job_id, flow, since in rows]

    async def drop(self, key: str) -> None:
        await self._file.write(lambda connection: connection.execute(_DROP_OVERDUE, (key,)).rowcount)
