"""The ledger: the row of a call and every change that it knows, which are pure; and the ports Ledger, Receipts and
Overdue over such rows.

A call belongs to the gateway that began it (`by`), until another adopts it or it turns out that it was never sent. The
first answer is kept, of any gateway.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from ductile_gateway.calls.call import (
    ALONE,
    AlreadyStarted,
    Answer,
    Asked,
    Intent,
    Past,
    Receipt,
    WantedName,
    read_again,
)
from ductile_gateway.ductile.watch import Job, OverdueJob
from ductile_gateway.store import artifact_names
from ductile_gateway.store.artifact_names import ArtifactNames
from ductile_gateway.store.rows import COME_BACK_S, Rows
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import microseconds
from groundwork.telemetry.span import Context
from schemas.events import ToolRequest
from schemas.values import dataclass, replace

EPOCH = datetime.fromtimestamp(0, UTC)
OPEN, ANSWERED = "open", "answered"

_CALLS = "SELECT subject, head, body FROM rows WHERE kind = 'call' AND"
_NUMBER_OPEN = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'open'"
_ANSWERED = f"{_CALLS} state = 'answered' AND at >= ? AND coalesce(by, '') IN ('', ?) ORDER BY position"
_LATE = "SELECT subject, head, body FROM rows WHERE is_late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`state`: open or answered; `at`: when it was completed. `body`: of the answer, else of the request.
    `begun`: its receipt. `late`: the job that outlived it."""

    key: str
    digest: str
    state: str
    trace: Context
    run_id: str
    step: int
    dedupe_key: str = ""
    by: str | None = ALONE
    route: str = ""
    may_repeat: bool = False
    deadline_at: datetime | None = None
    begun: Receipt | None = None
    late: OverdueJob | None = None
    at: datetime | None = None
    body: bytes = b""

    @property
    def past(self) -> Intent | Answer:
        by = self.by or ALONE
        if self.state == OPEN and self.deadline_at:
            asked = read_again(self.route, self.body, trace=self.trace)
            return Intent(asked=asked, may_repeat=self.may_repeat, deadline_at=self.deadline_at, by=by)
        return Answer(
            key=self.key,
            digest=self.digest,
            trace=self.trace,
            run_id=self.run_id,
            step=self.step,
            dedupe_key=self.dedupe_key,
            body=self.body,
            completed_at=self.at or EPOCH,
            by=by,
        )


def intended(call: Call | None, intent: Intent, receipt: Receipt | None, *, by: str) -> Call:
    """Its tool is about to be run by this gateway. Raises TryAgain and AlreadyStarted as Ledger.intend."""
    if call and call.state != OPEN:
        raise TryAgain(f"the call {call.key} was answered meanwhile", COME_BACK_S)
    if call and call.by not in (ALONE, by):
        raise TryAgain(f"another gateway has begun the call {call.key} ({call.by})", COME_BACK_S)
    if call and call.begun and receipt:
        raise AlreadyStarted(call.key)
    return replace(
        call or _new(intent.asked, intent.asked.request),
        state=OPEN,
        by=by,
        body=intent.asked.body,
        route=intent.asked.route,
        may_repeat=intent.may_repeat,
        deadline_at=intent.deadline_at,
        begun=receipt,
    )


def adopted(call: Call | None, intent: Intent, *, by: str) -> Call:
    if not call or call.state != OPEN or call.by not in (intent.by, by) or call.digest != intent.asked.digest:
        raise TryAgain(f"another gateway sees to the call {intent.key} ({call and call.by})", COME_BACK_S)
    return replace(call, by=by)


def answered(call: Call | None, answer: Answer, *, by: str) -> Call:
    if call and call.state != OPEN:
        return call
    return replace(
        call or _new(answer, answer),
        state=ANSWERED,
        at=answer.completed_at,
        by=by,
        dedupe_key=answer.dedupe_key,
        body=answer.body,
        begun=None,
    )


def accepted(call: Call | None, job_id: str, *, by: str) -> Call | None:
    if not call or not call.begun or call.by != by:
        return call
    return replace(call, begun=replace(call.begun, job_id=job_id))


def dropped(call: Call | None, *, by: str) -> Call | None:
    """Its receipt is needed no more: it was never sent, and any gateway may begin it."""
    if not call or not call.begun or call.by != by:
        return call
    return replace(call, by=ALONE, begun=None)


def overdue(call: Call | None, job: Job, at: datetime) -> Call | None:
    if not call or call.late:
        return call
    return replace(call, late=OverdueJob(call.key, replace(job, of=None), at))


def no_longer_overdue(call: Call | None) -> Call | None:
    return call and replace(call, late=None)


def _new(call: Asked | Answer, of: ToolRequest | Answer) -> Call:
    return Call(key=call.key, digest=call.digest, state=OPEN, trace=call.trace, run_id=of.run_id, step=of.step)


class CallLedger:
    """`by`: this gateway among others. `run_bytes`: what the artifacts of one run may take together."""

    def __init__(self, rows: Rows, *, by: str = ALONE, run_bytes: int = sys.maxsize) -> None:
        self._rows = rows
        self._by = by
        self._run_bytes = run_bytes

    async def find(self, key: str) -> Past:
        call = await self._rows.read(Call, key)
        return call.past if call else None

    async def intend(self, intent: Intent, receipt: Receipt | None = None) -> None:
        await self._rows.change(Call, partial(intended, intent=intent, receipt=receipt, by=self._by), intent.key)

    async def adopt(self, intent: Intent) -> None:
        await self._rows.change(Call, partial(adopted, intent=intent, by=self._by), intent.key)

    async def answer(self, answer: Answer) -> Answer:
        kept = await self._rows.change(Call, partial(answered, answer=answer, by=self._by), answer.key)
        past = kept and kept.past
        return past if isinstance(past, Answer) else answer

    async def name_artifacts(
        self, run_id: str, key: str, wanted: Sequence[WantedName], *, at: datetime
    ) -> tuple[str, ...]:
        taking = partial(artifact_names.taken, run_id=run_id, key=key, wanted=wanted, most=self._run_bytes, at=at)
        kept = await self._rows.change(ArtifactNames, taking, run_id)
        return kept.of_call(key) if kept else ()

    async def digest_of(self, run_id: str, name: str) -> str | None:
        kept = await self._rows.read(ArtifactNames, run_id)
        return kept.digest_of(name) if kept else None

    def number_open(self) -> int:
        ((number,),) = self._rows.look_up(_NUMBER_OPEN)
        return int(number)

    async def answers_to_publish(self, since: datetime) -> Sequence[Answer]:
        found = self._rows.listed(Call, _ANSWERED, (microseconds(since), self._by))
        return [past for call in found if isinstance(past := call.past, Answer)]


class CallReceipts:
    def __init__(self, rows: Rows, *, by: str) -> None:
        self._rows = rows
        self._by = by

    async def find(self, key: str) -> Receipt | None:
        call = await self._rows.read(Call, key)
        return call.begun if call else None

    async def accepted(self, key: str, job_id: str) -> None:
        await self._rows.change(Call, partial(accepted, job_id=job_id, by=self._by), key)

    async def drop(self, key: str) -> None:
        await self._rows.change(Call, partial(dropped, by=self._by), key)


class OverdueJobs:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def add(self, key: str, job: Job, at: datetime) -> None:
        await self._rows.change(Call, partial(overdue, job=job, at=at), key)

    def all(self) -> list[OverdueJob]:
        late = [call.late for call in self._rows.listed(Call, _LATE) if call.late]
        return sorted(late, key=lambda late: late.since)

    async def drop(self, key: str) -> None:
        await self._rows.change(Call, no_longer_overdue, key)
