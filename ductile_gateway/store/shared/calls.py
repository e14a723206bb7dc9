"""The row of a call, and every change that it knows. Pure.

A call belongs to the gateway that began it (`by`), until another adopts it or it turns out that it was never sent. The
first answer is kept, whoever gives it.
"""

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime

from ductile_gateway.calls.call import AlreadyStarted, Answer, Asked, Intent, Receipt
from ductile_gateway.ductile.watch import Job
from ductile_gateway.store import ledger
from ductile_gateway.store.shared.rows import Row, framed, unframed
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import instant, microseconds

LOOK_AGAIN_S = 0.2
NOBODY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The columns of the tables `calls` and `overdue`. `body`: of the answer (`completed_at`), else of the request.
    `position`: the sequence of its first fact, not known to that one."""

    key: str
    digest: str = ""
    trace_id: str = ""
    span_id: str = ""
    sampled: int = 1
    run_id: str = ""
    step: int = 0
    attempt: int = 0
    task: str | None = None
    round: int | None = None
    by: str = ""
    route: str | None = None
    may_repeat: int | None = None
    deadline_at: int | None = None
    body: bytes = b""
    begun_at: int | None = None
    job_id: str | None = None
    way: str | None = None
    newest: str | None = None
    completed_at: int | None = None
    published: int = 0
    late_job: str | None = None
    late_pipeline: int | None = None
    late_since: int | None = None
    position: int | None = None

    @property
    def is_answered(self) -> bool:
        return self.completed_at is not None

    @property
    def is_there(self) -> bool:
        return bool(self.digest)

    @property
    def request(self) -> bytes | None:
        return None if self.is_answered else self.body

    @property
    def answer(self) -> bytes | None:
        return self.body if self.is_answered else None

    def row(self) -> ledger.Row:
        begun = (self.route, self.may_repeat, self.deadline_at, self.request)
        named = (self.key, self.digest, self.trace_id, self.span_id, self.sampled)
        attempt = (self.run_id, self.step, self.attempt, self.task, self.round)
        return (*named, *begun, *attempt, self.answer, self.completed_at, self.by)

    def receipt(self) -> Receipt | None:
        if self.begun_at is None:
            return None
        return Receipt(instant(self.begun_at), self.job_id, self.way or "plugin", self.newest)  # type: ignore[arg-type]


Change = Callable[[Call], Call]
_COLUMNS = frozenset(field.name for field in fields(Call))


def written(call: Call) -> bytes:
    columns = asdict(call)
    body = columns.pop("body")
    return framed({name: value for name, value in columns.items() if value is not None}, body)


def read(row: Row, *, key: str) -> Call:
    if row.body is None:
        return Call(key=key)
    with contextlib.suppress(ValueError):
        call = read_fact(row.body, seq=row.seq)
        if call.is_there and call.key == key:
            return call
    raise TryAgain(f"what the stream of gateways has of the call {key} was written by no gateway", LOOK_AGAIN_S)


def read_fact(fact: bytes, *, seq: int) -> Call:
    columns, body = unframed(fact)
    known = {"position": seq} | {name: value for name, value in columns.items() if name in _COLUMNS}
    try:
        return Call(**known, body=body)
    except TypeError as error:
        raise ValueError(str(error)) from error


def intended(call: Call, intent: Intent, receipt: Receipt | None, *, by: str) -> Call:
    """Its tool is about to be run by this gateway. Raises TryAgain and AlreadyStarted as Ledger.intend."""
    if call.is_answered:
        raise TryAgain(f"the call {call.key} was answered meanwhile", LOOK_AGAIN_S)
    if call.by not in (NOBODY, by):
        raise TryAgain(f"another gateway has begun the call {call.key} ({call.by})", LOOK_AGAIN_S)
    if receipt and call.begun_at is not None:
        raise AlreadyStarted(call.key)
    asked = intent.asked
    return replace(
        _of_attempt(call, asked, asked.request.run_id, asked.request.step, asked.request.attempt),
        task=asked.request.task,
        round=asked.request.round,
        by=by,
        route=asked.route,
        may_repeat=int(intent.may_repeat),
        deadline_at=microseconds(intent.deadline_at),
        body=asked.body,
        begun_at=microseconds(receipt.begun_at) if receipt else None,
        way=receipt.way if receipt else None,
        newest=receipt.newest if receipt else None,
        job_id=None,
    )


def adopted(call: Call, intent: Intent, *, by: str) -> Call:
    if call.is_answered or call.by not in (intent.by, by) or call.digest != intent.asked.digest:
        raise TryAgain(f"another gateway sees to the call {call.key} ({call.by})", LOOK_AGAIN_S)
    return replace(call, by=by)


def answered(call: Call, answer: Answer, *, by: str) -> Call:
    if call.is_answered:
        return call
    return replace(
        _of_attempt(call, answer, answer.run_id, answer.step, answer.attempt),
        task=answer.task,
        round=answer.round,
        by=by,
        body=answer.body,
        completed_at=microseconds(answer.completed_at),
        begun_at=None,
        job_id=None,
        way=None,
        newest=None,
    )


def accepted(call: Call, job_id: str, *, by: str) -> Call:
    return replace(call, job_id=job_id) if call.begun_at is not None and call.by == by else call


def dropped(call: Call, *, by: str) -> Call:
    """Its receipt is needed no more: it was never sent, and any gateway may begin it."""
    if call.is_answered or call.begun_at is None or call.by != by:
        return call
    return replace(call, by=NOBODY, begun_at=None, job_id=None, way=None, newest=None)


def of(call: Call, *, by: str) -> Call:
    return replace(call, by=by)


def published(call: Call) -> Call:
    return replace(call, published=1) if call.is_answered else call


def overdue(call: Call, job: Job, at: datetime) -> Call:
    if call.late_job is not None or not call.is_there:
        return call
    return replace(call, late_job=job.job_id, late_pipeline=int(job.pipeline), late_since=microseconds(at))


def no_longer_overdue(call: Call) -> Call:
    return replace(call, late_job=None, late_pipeline=None, late_since=None)


def _of_attempt(call: Call, named: Asked | Answer, run_id: str, step: int, attempt: int) -> Call:
    trace = named.trace
    return replace(
        call,
        digest=named.digest,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        sampled=int(trace.sampled),
        run_id=run_id,
        step=step,
        attempt=attempt,
    )
