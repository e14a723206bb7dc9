"""The ledger of calls over rows. Fills the ports Ledger, Receipts and Overdue."""

import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from ductile_gateway.calls.call import Answer, Intent, Past, Receipt, WantedName
from ductile_gateway.ductile.watch import Job, OverdueJob
from ductile_gateway.store import artifact_names, calls
from ductile_gateway.store.artifact_names import ArtifactNames
from ductile_gateway.store.calls import Call
from ductile_gateway.store.rows import Rows, listed
from groundwork.sqlite.file import Values, microseconds

_CALLS = "SELECT subject, head, body FROM rows WHERE kind = 'call' AND"
_OPEN = f"{_CALLS} state = 'open' ORDER BY position"
_NUMBER_OPEN = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'open'"
_ANSWERED = f"{_CALLS} (state = 'answered' OR state = 'published' AND at >= ?) ORDER BY position"
_LATE = "SELECT subject, head, body FROM rows WHERE late IS NOT NULL"


class CallLedger:
    """`by`: this gateway among others. `run_bytes`: what the artifacts of one run may take together."""

    def __init__(self, rows: Rows, *, by: str = calls.ALONE, run_bytes: int = sys.maxsize) -> None:
        self._rows = rows
        self._by = by
        self._run_bytes = run_bytes

    async def find(self, key: str) -> Past:
        call = await self._rows.read(Call, key)
        return call.past if call else None

    async def intend(self, intent: Intent, receipt: Receipt | None = None) -> None:
        await self._rows.change(Call, partial(calls.intended, intent=intent, receipt=receipt, by=self._by), intent.key)

    def intend_soon(self, intent: Intent) -> None:
        self._rows.soon(Call, partial(calls.intended, intent=intent, receipt=None, by=self._by), intent.key)

    async def adopt(self, intent: Intent) -> None:
        await self._rows.change(Call, partial(calls.adopted, intent=intent, by=self._by), intent.key)

    async def answer(self, answer: Answer) -> Answer:
        kept = await self._rows.change(Call, partial(calls.answered, answer=answer, by=self._by), answer.key)
        past = kept and kept.past
        return past if isinstance(past, Answer) else answer

    def published(self, key: str) -> None:
        self._rows.soon(Call, calls.published, key)

    async def name_artifacts(
        self, run_id: str, key: str, wanted: Sequence[WantedName], *, at: datetime
    ) -> tuple[str, ...]:
        taking = partial(
            artifact_names.taken, run_id=run_id, key=key, wanted=wanted, most=self._run_bytes, at=microseconds(at)
        )
        kept = await self._rows.change(ArtifactNames, taking, run_id)
        return kept.of_call(key) if kept else ()

    async def digest_of(self, run_id: str, name: str) -> str | None:
        kept = await self._rows.read(ArtifactNames, run_id)
        return kept.digest_of(name) if kept else None

    async def open_intents(self) -> Sequence[Intent]:
        return [past for past in self._past(_OPEN) if isinstance(past, Intent)]

    def number_open(self) -> int:
        ((number,),) = self._rows.file.look_up(_NUMBER_OPEN)
        return int(number)

    async def answers_to_publish(self, since: datetime) -> Sequence[Answer]:
        return [past for past in self._past(_ANSWERED, (microseconds(since),)) if isinstance(past, Answer)]

    async def forget_before(self, instant: datetime) -> None:
        for kind in (Call, ArtifactNames):
            await self._rows.forget(kind, instant)

    def _past(self, statement: str, values: Values = ()) -> list[Intent | Answer]:
        return [call.past for call in listed(Call, self._rows.file.look_up(statement, values))]


class CallReceipts:
    def __init__(self, rows: Rows, *, by: str) -> None:
        self._rows = rows
        self._by = by

    async def find(self, key: str) -> Receipt | None:
        # As a change, because what was dropped soon may not be written yet.
        call = await self._rows.change(Call, calls.as_it_is, key)
        return call.receipt if call else None

    async def accepted(self, key: str, job_id: str) -> None:
        await self._rows.change(Call, partial(calls.accepted, job_id=job_id, by=self._by), key)

    async def drop(self, key: str) -> None:
        await self._rows.change(Call, partial(calls.dropped, by=self._by), key)

    def drop_soon(self, key: str) -> None:
        self._rows.soon(Call, partial(calls.dropped, by=self._by), key)


class OverdueJobs:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def add(self, key: str, job: Job, at: datetime) -> None:
        await self._rows.change(Call, partial(calls.overdue, job=job, at=at), key)

    def all(self) -> list[OverdueJob]:
        found = [call.overdue for call in listed(Call, self._rows.file.look_up(_LATE))]
        return sorted(filter(None, found), key=lambda late: late.since)

    async def drop(self, key: str) -> None:
        await self._rows.change(Call, calls.no_longer_overdue, key)
