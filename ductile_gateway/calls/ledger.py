"""The ledger: one row per call, the names of each run's artifacts, and the pure functions that change them.

A call belongs to the gateway that began it (`by`), until another adopts it or it turns out that it was never sent. The
first answer of any gateway is kept.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from ductile_gateway.calls.call import (
    ALONE,
    ANSWERED,
    EPOCH,
    OPEN,
    AlreadyStarted,
    Call,
    Intent,
    Job,
    NameCandidates,
    Receipt,
)
from ductile_gateway.store.rows import COME_BACK_S, Rows
from groundwork.service.errors import NoRoom, TryAgain
from groundwork.sqlite.file import microseconds
from schemas.values import dataclass, replace

_CALLS = "SELECT subject, head, body FROM rows WHERE kind = 'call' AND"
_NUMBER_OPEN = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'open'"
_ANSWERED = f"{_CALLS} state = 'answered' AND at >= ? AND coalesce(by, '') IN ('', ?) ORDER BY position"
_LATE = f"{_CALLS} is_late"


def intended(call: Call | None, intent: Intent, receipt: Receipt | None, by: str) -> Call:
    if call and call.state != OPEN:
        raise TryAgain(f"the call {call.key} was answered meanwhile", COME_BACK_S)
    if call and call.by not in (ALONE, by):
        raise TryAgain(f"another gateway has begun the call {call.key} ({call.by})", COME_BACK_S)
    if call and call.begun and receipt:
        raise AlreadyStarted(call.key)
    asked = intent.asked
    return Call.of(
        asked,
        by=by,
        body=asked.body,
        route=asked.route,
        may_repeat=intent.may_repeat,
        deadline_at=intent.deadline_at,
        begun=receipt,
        late=call.late if call else None,
    )


def adopted(call: Call | None, intent: Intent, by: str) -> Call:
    if not call or call.state != OPEN or call.by not in (intent.by, by) or call.digest != intent.asked.digest:
        raise TryAgain(f"another gateway sees to the call {intent.key} ({call and call.by})", COME_BACK_S)
    return replace(call, by=by)


def answered(call: Call | None, answer: Call, by: str) -> Call:
    return call if call and call.state == ANSWERED else replace(answer, by=by, late=call.late if call else None)


@dataclass(frozen=True, slots=True)
class Artifact:
    name: str
    key: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactNames:
    run_id: str
    at: datetime
    all: tuple[Artifact, ...]
    state: str = "named"
    body: bytes = b""


def named(
    kept: ArtifactNames | None, run_id: str, key: str, wanted: Sequence[NameCandidates], most: int, at: datetime
) -> ArtifactNames:
    found = [one for one in kept.all if one.key != key] if kept else []
    size, more = sum(one.size for one in found), sum(one.size for one in wanted)
    if size + more > most:
        may = f"the {most >> 20} MiB that a run may keep (gateway.run_mb)"
        raise NoRoom(f"its artifacts take {size} bytes already, and with {more} more they would take more than {may}")
    for one in wanted:
        taken = {other.name.lower() for other in found}
        free = [name for name in one.candidates if name.lower() not in taken]
        if not free:
            raise ValueError(f"all names for an artifact of {key} are taken: {', '.join(one.candidates)}")
        found.append(Artifact(free[0], key, one.sha256, one.size))
    return kept if kept and list(kept.all) == found else ArtifactNames(at=at, run_id=run_id, all=tuple(found))


class Ledger:
    """Changes are durable on return. `run_bytes`: limit for all artifacts of one run."""

    def __init__(self, rows: Rows, *, run_bytes: int = sys.maxsize) -> None:
        self._rows = rows
        self._run_bytes = run_bytes

    async def find(self, key: str) -> Call | None:
        return await self._rows.read(Call, key)

    async def intend(self, intent: Intent, receipt: Receipt | None = None) -> None:
        """This gateway is about to run the tool. Raises AlreadyStarted if there is a receipt, and TryAgain if another
        gateway has begun or answered the call."""
        await self._change(intent.key, partial(intended, intent=intent, receipt=receipt, by=self._rows.by))

    async def adopt(self, intent: Intent) -> None:
        """Makes the call this gateway's. Raises TryAgain if it has changed meanwhile."""
        await self._change(intent.key, partial(adopted, intent=intent, by=self._rows.by))

    async def answer(self, answer: Call) -> Call:
        """Returns the first answer to the call, which is kept for ever."""
        return await self._change(answer.key, partial(answered, answer=answer, by=self._rows.by)) or answer

    async def name_artifacts(
        self, run_id: str, key: str, wanted: Sequence[NameCandidates], *, at: datetime
    ) -> tuple[str, ...]:
        """Gives each artifact its first candidate that is free in the run, ignoring case. The same call gets the same
        names. Raises NoRoom, and ValueError if all candidates are taken."""
        naming = partial(named, run_id=run_id, key=key, wanted=wanted, most=self._run_bytes, at=at)
        kept = await self._rows.change(ArtifactNames, naming, run_id)
        return tuple(one.name for one in kept.all if one.key == key) if kept else ()

    async def digest_of(self, run_id: str, name: str) -> str | None:
        kept = await self._rows.read(ArtifactNames, run_id)
        return next((one.sha256 for one in kept.all if one.name.lower() == name.lower()), None) if kept else None

    def number_open(self) -> int:
        ((number,),) = self._rows.look_up(_NUMBER_OPEN)
        return int(number)

    async def answers_to_publish(self, since: datetime) -> Sequence[Call]:
        return self._rows.listed(Call, _ANSWERED, (microseconds(since), self._rows.by))

    async def receipt(self, key: str) -> Receipt | None:
        call = await self.find(key)
        return call.begun if call else None

    async def accepted(self, key: str, job_id: str) -> None:
        await self._change_begun(key, lambda call, begun: replace(call, begun=replace(begun, job_id=job_id)))

    async def never_sent(self, key: str) -> None:
        """Drops the receipt: any gateway may begin the call."""
        await self._change_begun(key, lambda call, _: replace(call, by=ALONE, begun=None))

    async def outlived(self, key: str, job: Job, at: datetime) -> None:
        late = replace(job, of=None, late_since=at)
        await self._change(key, lambda call: replace(call, late=late) if call and not call.late else call)

    def late(self) -> list[tuple[str, Job]]:
        """Late jobs with the keys of their calls, the longest late first."""
        late = [(call.key, call.late) for call in self._rows.listed(Call, _LATE) if call.late]
        return sorted(late, key=lambda late: late[1].late_since or EPOCH)

    async def late_reported(self, key: str) -> None:
        await self._change(key, lambda call: call and replace(call, late=None))

    async def _change(self, key: str, change: Callable[[Call | None], Call | None]) -> Call | None:
        return await self._rows.change(Call, change, key)

    async def _change_begun(self, key: str, change: Callable[[Call, Receipt], Call]) -> None:
        me = self._rows.by
        await self._change(
            key, lambda call: change(call, call.begun) if call and call.begun and call.by == me else call
        )
