"""The ledger that several gateways have in common. Fills the ports Ledger, Receipts and Overdue."""

import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from ductile_gateway.calls.call import Answer, Intent, Past, Receipt
from ductile_gateway.ductile.watch import Job
from ductile_gateway.store.ledger import OLD, SqliteLedger, SqliteOverdue, check_room, past_of
from ductile_gateway.store.shared import artifact_names, calls
from ductile_gateway.store.shared.call_rows import CallRows
from ductile_gateway.store.shared.rows import ARTIFACTS, CALL, Row, Rows, subject_of, subject_of_forgotten, told_before
from groundwork.sqlite.file import SqliteFile, microseconds

_RUNS_OF = f"SELECT run_id, key FROM artifacts WHERE key IN ({OLD})"  # noqa: S608 - ours
ALL = -1


class SharedLedger(SqliteLedger):
    """Calls and artifacts. `file` is the own copy, `by` this gateway among the others."""

    def __init__(
        self,
        file: SqliteFile,
        rows: Rows,
        call_rows: CallRows,
        *,
        by: str,
        run_bytes: int = sys.maxsize,
    ) -> None:
        super().__init__(file, run_bytes=run_bytes)
        self._rows = rows
        self._calls = call_rows
        self._by = by

    async def find(self, key: str) -> Past:
        call = await self._calls.find(key)
        return past_of(call.row()) if call.is_there else None

    async def intend(self, intent: Intent, receipt: Receipt | None = None) -> None:
        await self._calls.change(intent.key, self._intended(intent, receipt))

    def intend_soon(self, intent: Intent) -> None:
        self._calls.soon(intent.key, self._intended(intent, None))

    async def adopt(self, intent: Intent) -> None:
        await self._calls.change(intent.key, partial(calls.adopted, intent=intent, by=self._by))

    async def answer(self, answer: Answer) -> Answer:
        kept = await self._calls.change(answer.key, partial(calls.answered, answer=answer, by=self._by))
        past = past_of(kept.row())
        return past if isinstance(past, Answer) else answer

    def published(self, key: str) -> None:
        self._calls.soon(key, calls.published)

    async def name_artifacts(
        self, run_id: str, key: str, candidates: Sequence[Sequence[str]], digests: Sequence[str], sizes: Sequence[int]
    ) -> tuple[str, ...]:
        wanted = tuple(zip(candidates, digests, sizes, strict=True))
        names: tuple[str, ...] = ()

        def work(row: Row) -> bytes | None:
            nonlocal names
            kept = artifact_names.read(row)
            check_room(sum(one.size for one in kept if one.key != key), sum(sizes), most=self._run_bytes)
            taken, names = artifact_names.taken(kept, key, wanted)
            return None if taken == kept else artifact_names.written(run_id, taken)

        await self._rows.change(subject_of(ARTIFACTS, run_id), work)
        return names

    async def digest_of(self, run_id: str, name: str) -> str | None:
        row = await self._rows.read(subject_of(ARTIFACTS, run_id))
        return next((one.sha256 for one in artifact_names.read(row) if one.is_called(name)), None)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        old = [key for (key,) in await self._file.read(OLD, (before, ALL))]
        if not old:
            return
        named: dict[str, set[str]] = {}
        for run_id, key in await self._file.read(_RUNS_OF, (before, ALL)):
            named.setdefault(run_id, set()).add(key)
        await self._rows.forget([subject_of(CALL, key) for key in old])
        for run_id, keys in named.items():
            await self._forget_names(run_id, keys)
        await self._rows.tell(subject_of_forgotten(CALL), told_before(before))

    async def _forget_names(self, run_id: str, keys: set[str]) -> None:
        def work(row: Row) -> bytes | None:
            kept = artifact_names.read(row)
            left = [one for one in kept if one.key not in keys]
            return None if left == kept else artifact_names.written(run_id, left)

        row = await self._rows.change(subject_of(ARTIFACTS, run_id), work)
        if not artifact_names.read(row):
            await self._rows.forget([subject_of(ARTIFACTS, run_id)])

    def _intended(self, intent: Intent, receipt: Receipt | None) -> calls.Change:
        return partial(calls.intended, intent=intent, receipt=receipt, by=self._by)


class SharedReceipts:
    def __init__(self, call_rows: CallRows, *, by: str) -> None:
        self._calls = call_rows
        self._by = by

    async def find(self, key: str) -> Receipt | None:
        return (await self._calls.find(key)).receipt()

    async def accepted(self, key: str, job_id: str) -> None:
        await self._calls.change(key, partial(calls.accepted, job_id=job_id, by=self._by))

    async def drop(self, key: str) -> None:
        await self._calls.change(key, partial(calls.dropped, by=self._by))

    def drop_soon(self, key: str) -> None:
        self._calls.soon(key, partial(calls.dropped, by=self._by))


class SharedOverdue(SqliteOverdue):
    def __init__(self, file: SqliteFile, call_rows: CallRows) -> None:
        super().__init__(file)
        self._calls = call_rows

    async def add(self, key: str, job: Job, at: datetime) -> None:
        await self._calls.change(key, partial(calls.overdue, job=job, at=at))

    async def drop(self, key: str) -> None:
        await self._calls.change(key, calls.no_longer_overdue)
