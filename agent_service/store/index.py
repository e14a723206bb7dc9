"""Reads of the rows of runs: lists, sums, tombstones and dismissals.

The database is an agent's own store, or its index of the log that several agents share.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, TypeVar

from agent_service.archive.retention import ArtifactTombstone, Tombstone
from agent_service.core.waiting import Status
from agent_service.run.ports import Dismissal, ReservedFunds
from agent_service.store.database import Quarantine, load_queries, named, value_of
from agent_service.store.lines import EVERY_RUN, RunFilter, RunLine, Sum, parse_line
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas.status import Halt
from schemas.values import replace

T = TypeVar("T")
AFTER_EVERY_ID = "~"
"""Sorts after every character of a run id."""
END_OF_TIME = 2**62
"""µs, after every instant."""
SEARCHED_AT_ONCE = 2000
"""Rows that one statement looks into before other reads get their turn: 20 to 50 ms."""
UNREADABLE = "its row"
LISTED = "run_id", "wake_id", "status", "goal", "summary", "accepted_at", "updated_at", "caller"


class RunIndex:
    """Lists leave out runs in quarantine, except for `runs`, which marks them as damaged."""

    def __init__(self, database: SqliteFile) -> None:
        self.database = database
        self._sql = load_queries()
        self._quarantine = Quarantine()
        self._searching = asyncio.Lock()
        """Searches queue here rather than before readers of a run."""

    # records beside the journals

    async def newest_halt(self) -> Halt | None:
        return self._value(Halt, "newest_halt")

    async def dismissal(self, run_id: str) -> Dismissal | None:
        return self._value(Dismissal, "dismissal", run_id)

    async def tombstone(self, run_id: str) -> Tombstone | None:
        return self._value(Tombstone, "tombstone", run_id)

    async def artifacts_gone(self, run_id: str) -> ArtifactTombstone | None:
        return self._value(ArtifactTombstone, "artifacts_gone", run_id)

    def _value(self, kind: Callable[..., T], statement: str, *values: object) -> T | None:
        return next((value_of(kind, row) for row in self.database.look_up(self._sql[statement], values)), None)

    # lists

    async def run_by_wake(self, wake_id: str) -> str | None:
        return next((run_id for run_id, _ in self.database.look_up(self._sql["wake"], (wake_id,))), None)

    def version(self, run_id: str) -> int:
        return sum(version for (version,) in self.database.look_up(self._sql["version"], (run_id,)))

    def head(self, run_id: str) -> tuple[int, str]:
        """Number and hash of the newest entry; 0 without one."""
        rows = self.database.look_up(self._sql["head"], (run_id,))
        return next(((version, head.hex()) for version, head in rows), (0, ""))

    async def for_people(self, limit: int) -> Sequence[tuple[str, datetime]]:
        """Paused runs, and escalated ones without a dismissal, each with its newest entry's instant. Newest first."""
        rows = await self.database.read(self._sql["for_people"], (limit,))
        return [(run_id, instant(touched_at)) for run_id, touched_at in rows]

    async def count_for_people(self) -> int:
        ((runs,),) = await self.database.read(self._sql["count_for_people"])
        return int(runs)

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return await self._run_ids("due", microseconds(now), limit + len(self._quarantine))

    async def queued(self, limit: int) -> Sequence[str]:
        rows = self.database.look_up(self._sql["queued"], (limit + len(self._quarantine),))
        return [run_id for (run_id,) in rows if run_id not in self._quarantine]

    async def changed_since(self, since: datetime, *, or_open: bool = False) -> Sequence[str]:
        """Runs with an entry at or after `since`, and with `or_open` all open ones."""
        return await self._run_ids("changed_since", microseconds(since), or_open)

    async def with_artifacts(self) -> Sequence[str]:
        """Runs whose artifacts are kept."""
        return await self._run_ids("with_artifacts")

    async def waiting_for_budget(self) -> Sequence[str]:
        return await self._run_ids("waiting_for_budget")

    async def counts(self) -> dict[Status, int]:
        return {Status(status): runs for status, runs in self.database.look_up(self._sql["counts"])}

    async def sums(self, day: date) -> Sequence[Sum]:
        """Sums over the runs that were accepted on a day (UTC)."""
        begins = microseconds(datetime.combine(day, time(), UTC))
        return [Sum(*row) for row in await self.database.read(self._sql["sums"], (begins, begins + 86_400_000_000))]

    def spent(self, day: date) -> Mapping[str, tuple[float, int]]:
        """USD, and bytes of wakes, by caller."""
        rows = self.database.look_up(self._sql["spent"], (f"{day:%Y-%m-%d}",))
        return {caller: (usd, size) for caller, usd, size in rows}

    def open_runs(self) -> Mapping[str, int]:
        """By caller, without child runs."""
        return dict(self.database.look_up(self._sql["open_runs"]))

    def reserved(self) -> Mapping[str, ReservedFunds]:
        """Funds reserved for model calls in flight, by run."""
        rows = self.database.look_up(self._sql["set_aside"])
        return {run_id: ReservedFunds(caller or "", usd) for run_id, caller, usd in rows}

    async def runs(self, wanted: RunFilter = EVERY_RUN, *, limit: int, before: str | None = None) -> Sequence[RunLine]:
        """Newest first, from after run `before` on."""
        found = list[tuple[Any, ...]]()
        async with self._searching if wanted.text or wanted.tool else contextlib.nullcontext():
            async for below, lowest in self._stretches(wanted, before or AFTER_EVERY_ID):
                found += await self._between(wanted, limit - len(found), below, lowest)
                if len(found) >= limit:
                    break
        return [self._line(row) for row in found]

    async def _stretches(self, wanted: RunFilter, below: str) -> AsyncIterator[tuple[str, str]]:
        """Bounds of ids to look into, newest first, each few enough for one statement: below the first, from the second
        on."""
        if wanted.wake_id:
            for run_id, _ in await self.database.read(self._sql["wake"], (wanted.wake_id,)):
                if run_id < below:
                    yield run_id + AFTER_EVERY_ID, run_id
            return
        if wanted.text or wanted.run or wanted.tool or wanted.since or wanted.until or wanted.caller:
            while rows := await self.database.read(self._sql["stretch"], (below, SEARCHED_AT_ONCE)):
                ((lowest, accepted_at),) = rows
                yield below, lowest
                if wanted.since is not None and instant(accepted_at) < wanted.since:
                    return
                below = lowest
        yield below, ""

    async def _between(self, wanted: RunFilter, limit: int, below: str, lowest: str) -> list[Any]:
        statuses = json.dumps([status.value for status in wanted.statuses or Status])
        since = microseconds(wanted.since) if wanted.since else 0
        until = microseconds(wanted.until) if wanted.until else END_OF_TIME
        # LIKE ignores the case of ASCII letters only, so both cases of all others are searched for
        lower, upper = _pattern(wanted.text.lower()), _pattern(wanted.text.upper())
        values = statuses, below, lowest, since, lower, upper, wanted.tool, limit, until, wanted.caller, wanted.run
        return await self.database.read(self._sql["runs"], values)

    def _line(self, row: tuple[Any, ...]) -> RunLine:
        *values, columns = row
        about = named(LISTED, values)
        try:
            line = parse_line(about, columns)
        except (ValueError, TypeError):
            line = RunLine(**about, damaged=UNREADABLE)
        damage = self._quarantine.get(line.run_id)
        return replace(line, damaged=damage.what) if damage else line

    async def _run_ids(self, statement: str, *values: object) -> list[str]:
        rows = await self.database.read(self._sql[statement], values)
        return [run_id for (run_id,) in rows if run_id not in self._quarantine]


def _pattern(text: str) -> str:
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%" if text else ""
