"""The ledger: one row per call, and one with the names of each run's artifacts. Rows change by pure functions.

A call belongs to the gateway that began it (`by`), until another adopts it or it turns out that it was never sent. The
first answer of any gateway is kept.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime

from ductile_gateway.calls.call import ALONE, EPOCH, AlreadyStarted, Call, Job, ProducedArtifact, Receipt, ToolCall
from ductile_gateway.store.rows import COME_BACK_S, Rows, Version
from groundwork.service.errors import NoRoom, TryAgain
from groundwork.sqlite.file import microseconds
from schemas.values import dataclass, replace

_CALLS = "SELECT subject, head, body FROM rows WHERE kind = 'call' AND"
_NUMBER_OPEN = "SELECT count(*) FROM rows WHERE kind = 'call' AND state = 'open'"
_ANSWERED = f"{_CALLS} state = 'answered' AND at >= ? AND coalesce(by, '') IN ('', ?) ORDER BY position"
_BEGUN = f"{_CALLS} state = 'open' AND by = ? ORDER BY position"
_LATE = f"{_CALLS} is_late"

CallVersion = Version[Call]


@dataclass(frozen=True, slots=True)
class Artifact:
    name: str
    key: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class ArtifactNames:
    run_id: str
    at: datetime
    all: tuple[Artifact, ...]
    state: str = "named"
    body: bytes = b""


@dataclass(eq=False)
class Ledger:
    """Changes are durable on return. `run_bytes`: limit for all artifacts of one run. `runner`: as in the settings."""

    rows: Rows
    run_bytes: int = sys.maxsize
    runner: str = ""

    async def find(self, key: str, seen: CallVersion | None = None) -> Call | None:
        return await self.rows.read(Call, key, seen=seen)

    async def intend(self, call: ToolCall, receipt: Receipt | None = None, seen: CallVersion | None = None) -> None:
        """This gateway is about to run the tool. Raises AlreadyStarted if there is a receipt, and TryAgain if another
        gateway has begun or answered the call."""

        def intended(row: Call | None) -> Call:
            if row and not row.is_open:
                raise TryAgain(f"the call {row.key} was answered meanwhile", COME_BACK_S)
            if row and row.by not in (ALONE, self.rows.by):
                raise TryAgain(f"another gateway has begun the call {row.key} ({row.by})", COME_BACK_S)
            if row and row.begun and receipt:
                raise AlreadyStarted(row.key)
            return Call.of(
                call.asked,
                by=self.rows.by,
                runner=self.runner,
                body=call.asked.body,
                route=call.asked.route,
                may_repeat=call.may_repeat,
                deadline_at=call.deadline_at,
                begun=receipt,
                late=row.late if row else None,
            )

        await self.rows.change(Call, intended, call.key, seen=seen)

    async def adopt(self, known: Call) -> None:
        """Makes the call this gateway's. Raises TryAgain if it has changed meanwhile."""
        me = self.rows.by

        def adopted(row: Call | None) -> Call:
            if not row or not row.is_open or row.by not in (known.by, me) or row.digest != known.digest:
                raise TryAgain(f"another gateway sees to the call {known.key} ({row and row.by})", COME_BACK_S)
            return replace(row, by=me)

        await self.rows.change(Call, adopted, known.key)

    async def answer(self, answer: Call, seen: CallVersion | None = None) -> Call:
        """Returns the first answer to the call, which is kept for ever."""

        def answered(row: Call | None) -> Call:
            if row and not row.is_open:
                return row
            return replace(answer, by=self.rows.by, late=row.late if row else None)

        return await self.rows.change(Call, answered, answer.key, seen=seen) or answer

    async def name_artifacts(
        self, run_id: str, key: str, wanted: Sequence[tuple[ProducedArtifact, Sequence[str]]], *, at: datetime
    ) -> tuple[str, ...]:
        """Gives each artifact the first of its candidate names that is free in the run, ignoring case. The same call
        gets the same names. Raises NoRoom, and ValueError if all candidates are taken."""

        def named(row: ArtifactNames | None) -> ArtifactNames:
            found = [one for one in row.all if one.key != key] if row else []
            size, more = sum(one.size for one in found), sum(len(one.content) for one, _ in wanted)
            if size + more > self.run_bytes:
                may = f"the {self.run_bytes >> 20} MiB that a run may keep (gateway.run_mb)"
                why = f"its artifacts take {size} bytes already, and with {more} more they would take more than {may}"
                raise NoRoom(why)
            for one, candidates in wanted:
                taken = {known.name.lower() for known in found}
                free = [name for name in candidates if name.lower() not in taken]
                if not free:
                    raise ValueError(f"all names for an artifact of {key} are taken: {', '.join(candidates)}")
                found.append(Artifact(free[0], key, one.sha256, len(one.content)))
            return row if row and list(row.all) == found else ArtifactNames(at=at, run_id=run_id, all=tuple(found))

        kept = await self.rows.change(ArtifactNames, named, run_id)
        return tuple(one.name for one in kept.all if one.key == key) if kept else ()

    async def digest_of(self, run_id: str, name: str) -> str | None:
        kept = await self.rows.read(ArtifactNames, run_id)
        return next((one.sha256 for one in kept.all if one.name.lower() == name.lower()), None) if kept else None

    def number_open(self) -> int:
        ((number,),) = self.rows.look_up(_NUMBER_OPEN)
        return int(number)

    async def answers_to_publish(self, since: datetime) -> Sequence[Call]:
        return self.rows.listed(Call, _ANSWERED, (microseconds(since), self.rows.by))

    def begun_here(self) -> Sequence[Call]:
        """Open calls that this gateway has begun or adopted."""
        return self.rows.listed(Call, _BEGUN, (self.rows.by,))

    async def accepted(self, key: str, job_id: str) -> None:
        await self._change_begun(key, lambda row, begun: replace(row, begun=replace(begun, job_id=job_id)))

    async def never_sent(self, key: str) -> None:
        """Drops the receipt: any gateway may begin the call."""
        await self._change_begun(key, lambda row, _: replace(row, by=ALONE, runner="", begun=None))

    async def outlived(self, key: str, job: Job, at: datetime) -> None:
        late = replace(job, of=None, late_since=at)
        await self.rows.change(Call, lambda row: row and replace(row, late=row.late or late), key)

    def late(self) -> list[tuple[str, Job]]:
        """Late jobs with the keys of their calls, the longest late first."""
        late = [(row.key, row.late) for row in self.rows.listed(Call, _LATE) if row.late]
        return sorted(late, key=lambda late: late[1].late_since or EPOCH)

    async def late_reported(self, key: str) -> None:
        await self.rows.change(Call, lambda row: row and replace(row, late=None), key)

    async def _change_begun(self, key: str, change: Callable[[Call, Receipt], Call]) -> None:
        def changed(row: Call | None) -> Call | None:
            return change(row, row.begun) if row and row.begun and row.by == self.rows.by else row

        await self.rows.change(Call, changed, key)
