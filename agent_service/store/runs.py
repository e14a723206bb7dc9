"""The store of runs, above the carrier of their entries: what a carrier does itself, and what both serve.

`SqliteStore` is the store of one agent: entries and states are rows of its database. `SharedStore` is that of several:
entries are messages of a log, and each process has an index of them in a database. A position is the place of an entry
in the journal of all runs, by rows or by messages.
"""

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, TypeVar

from agent_service.archive.retention import ArtifactTombstone, Tombstone
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, VersionMoved, WakeConflict
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.ports import Dismissal, JournalPosition, RecordedCall, ReservedFunds
from agent_service.store.database import Quarantine, load_queries, named, value_of
from agent_service.store.lines import EVERY_RUN, RunFilter, RunLine, Sum, parse_line
from agent_service.store.messages import LEVEL, Beside, DismissalRecord, HaltRecord
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas import subjects
from schemas.status import Halt
from schemas.values import replace

T = TypeVar("T")
LeaseCheck = Callable[[], Awaitable[None]]
AFTER_EVERY_ID = "~"
"""Sorts after every character of a run id."""
END_OF_TIME = 2**62
"""µs, after every instant."""
SEARCHED_AT_ONCE = 2000
"""Rows that one statement looks into before other reads get their turn: 20 to 50 ms."""
UNREADABLE = "its row"
LISTED = "run_id", "wake_id", "status", "goal", "summary", "accepted_at", "updated_at", "caller"
FASTER = "another agent has just stopped everything, or let it go on: look again"


async def no_lease() -> None:
    return


class RunStore(ABC):
    """`held` checks that this process may store: it raises TryAgain while that is unknown, another Failure once another
    process has the bus. `me`: this process among several. A full or locked disk, and a bus that is away, raise
    TryAgain; a broken disk raises Broken.

    Lists leave out runs in quarantine, except for `runs`, which marks them as damaged.
    """

    me = ""

    def __init__(self, database: SqliteFile, held: LeaseCheck = no_lease) -> None:
        self.database = database
        self._held = held
        self._sql = load_queries()
        self._quarantine = Quarantine()
        self._searching = asyncio.Lock()
        """Searches queue here rather than before readers of a run."""

    # what a carrier does itself

    @abstractmethod
    async def accept(self, commit: Commit, digest: str) -> str:
        """Stores a new run and returns its id; for a known wake id with the same digest, that run's. Raises
        WakeConflict for another digest, VersionMoved for a run id of another wake, and TryAgain."""

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Raises VersionMoved when another entry has its place, TryAgain, and Damaged for a run in quarantine."""

    @abstractmethod
    async def load(self, run_id: str, version: int = 0) -> Run | None:
        """`version`: an entry that is stored, though its commit may not have returned. Raises Damaged for a run that
        cannot be read, which is in quarantine from then on, and NewerVersion."""

    @abstractmethod
    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        """Entries of the run with `seq` > `after`, in order."""

    @abstractmethod
    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        """Positions of entries behind `after`, in order."""

    @abstractmethod
    async def positions(self, run_id: str) -> tuple[int, ...]:
        """Positions of the run's entries."""

    @abstractmethod
    def newest(self) -> int:
        """The newest position."""

    @abstractmethod
    async def row(self, run_id: str) -> tuple[Any, ...]:
        """Version, status, `due_at`, summary and goal as they are stored beside the run's state."""

    @abstractmethod
    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        """Model calls that entries at or after `since` tell of, in order."""

    @abstractmethod
    async def total_bytes(self) -> int:
        """Bytes that all runs take."""

    @abstractmethod
    async def put(self, *records: Beside, after: int | None) -> Sequence[Beside]:
        """Returns those that are stored and in the database. `after`: position in the log that must be the newest of
        the subject; None for any. Raises TryAgain."""

    # what not every carrier does

    def quarantine(self, found: Damaged) -> None:
        """Leaves the run alone until the next start: not due, not queued, no commits."""
        self._quarantine.add(found)

    async def newest_position(self, subject: str) -> int:
        """Position of the newest record of a subject, which is then in the database, too; 0 without a log. Raises
        TryAgain."""
        del subject
        return 0

    async def purge(self, wake_id: str, run_id: str) -> None:
        """Removes a run's messages from the log. Raises TryAgain."""
        del wake_id, run_id

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Notes that entries up to `seq` are dispatched, unless a message stands for those that are not."""
        del run_id, seq

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        """Runs with entries that may not be dispatched, and that no message drives. Oldest first."""
        del limit
        return ()

    async def caught_up(self) -> None:
        """Waits until the database has everything that any process has stored by now."""
        return

    async def may_call_model(self, run_id: str, call: int) -> bool:
        """False while another process may be making model call `call`, which was asked for before."""
        del run_id, call
        return True

    async def is_current(self, run_id: str, version: int) -> bool:
        """True if `version` is the newest entry of any process. Raises TryAgain."""
        del run_id, version
        return True

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        """True if another process has reserved model call `call` after entry `since`, as known after `load`."""
        del run_id, call, since
        return False

    # records beside the journals

    async def newest_halt(self) -> Halt | None:
        return self._value(Halt, "newest_halt")

    async def keep_halt(self, halt: Halt) -> None:
        """Replaces the record of its number. Raises TryAgain, also for a halt that does not follow the newest one."""
        position = await self.newest_position(subjects.STORED_HALT)
        record = HaltRecord(v=LEVEL, by=self.me, halt=halt)
        if not _follows(halt, await self.newest_halt()) or not await self.put(record, after=position):
            raise TryAgain(FASTER)

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Returns the dismissal in force: the earliest of the run's version."""
        await self.put(DismissalRecord(v=LEVEL, dismissal=dismissal), after=None)
        return await self.dismissal(dismissal.run_id) or dismissal

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
        ((version, head),) = self.database.look_up(self._sql["head"], (run_id,))
        return version, head.hex()

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

    async def open_or_changed(self, since: datetime) -> Sequence[str]:
        """Open runs, and ended ones with an entry at or after `since`."""
        return await self._run_ids("open_or_changed", microseconds(since))

    async def changed_since(self, since: datetime) -> Sequence[str]:
        """Runs with an entry at or after `since`."""
        return await self._run_ids("changed_since", microseconds(since))

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

    async def _require_lease(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error


def _pattern(text: str) -> str:
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%" if text else ""


def same_wake(wake_id: str, run_id: str, *, same: bool) -> str:
    """Returns the run that a known wake names. Raises WakeConflict for another request."""
    if not same:
        raise WakeConflict(wake_id, run_id)
    return run_id


def version_moved(entry: Entry) -> VersionMoved:
    return VersionMoved(f"run {entry.run_id} is not at version {entry.seq - 1}: load it and decide again")


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number > known.number:
        return True
    is_same = (halt.number, halt.since, halt.by, halt.reason) == (known.number, known.since, known.by, known.reason)
    return is_same and progress_of(halt) >= progress_of(known)


def progress_of(halt: Halt) -> tuple[int, bool, bool]:
    return halt.number, halt.until is not None, halt.over
