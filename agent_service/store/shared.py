"""The run store that several agents share: a log of entries, an index of it in each process, and runs on demand.

    decide ─▶ append, if the run's newest entry is the one it was decided on ─▶ acknowledged ─▶ in the index ─▶ done

A run is read from its messages, from the newest that says all of it, and then from where it was read to. A commit with
an unknown outcome raises TryAgain: its message is delivered again. If it was stored after all, `on_elsewhere` hears of
it as of those of other processes. What an entry asks for is done under its message (`in_hand`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from agent_service.errors import VersionMoved
from agent_service.run.changes import RecordedCall, RemoteCommit
from agent_service.run.inbound import CURRENT_MESSAGE, WorkMessage, turn_id
from agent_service.run.journal import Commit, Entry, Run
from agent_service.run.ports import JournalPosition
from agent_service.store.journals import Journal, JournalCache, told
from agent_service.store.messages import (
    ROW,
    HaltRecord,
    RunRow,
    SideRecord,
    TombstoneRecord,
    encoded,
    entry_in,
    record_in,
    row_in,
)
from agent_service.store.sqlite import LeaseCheck, RunStore, moved, the_same
from groundwork.nats.publishing import StoredMessage, matches
from groundwork.nats.shared_log import ALL, Moved, SharedLog
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic, token_hex
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.replica import Replica
from schemas import subjects
from schemas.status import Halt

TURN_EXPECTED_WITHIN_S = 5.0
"""An entry that no message led to is followed by its turn within it, or its agent died before it queued that."""
LATE_FACTS = 2000
"""That are looked at, at most, for calls of late."""
ACKNOWLEDGED = -1

logger = logging.getLogger(__name__)


class SharedStore(RunStore):
    """`held` raises unless this process may commit. `on_elsewhere`, `on_halt` hear what other processes commit."""

    calls_model_at_once = False

    def __init__(self, database: SqliteFile, log: SharedLog, index: Replica, *, held: LeaseCheck) -> None:
        super().__init__(database, held)
        self._log, self._index, self.me = log, index, token_hex(8)
        self.turn_expected_within_s = TURN_EXPECTED_WITHIN_S
        self._expected: dict[str, tuple[float, str, int]] = {}
        """Turns not seen yet: until when there is time, and the entry that asks for each."""
        self._journals = JournalCache(database, log, self._quarantine, self.caught_up)
        self._own: dict[str, int] = {}
        """Entries of this process, by hash: their positions once they are in the index, 0 before that, ACKNOWLEDGED."""
        self._began_at = float("inf")
        """The position up to which nothing is news."""
        self.on_elsewhere: Callable[[RemoteCommit], object] = _unheard
        self.on_halt: Callable[[Halt], object] = _unheard

    async def begin(self) -> None:
        """From what the index has. To be awaited before anything else, once that has caught up."""
        self._began_at = self._index.reached
        for run_id, seq in await self._database.read(self._sql["overdue_turns"]):
            self._expect_turn(run_id, seq)

    async def caught_up(self) -> None:
        await self._index.wait(await self._log.end())

    async def accept(self, commit: Commit, digest: str) -> str:
        run_id, wake_id = commit.entry.run_id, commit.state.wake_id
        for known, of in self._database.look_up(self._sql["wake"], (wake_id,)):
            return the_same(wake_id, known, of == digest)
        await self._permitted()
        if self.version(run_id):
            raise moved(commit.entry)
        journal = Journal(run_id, subjects.stored_run(wake_id, run_id), digest=digest)
        try:
            await self._append(commit, journal, among=subjects.stored_wake(wake_id))
        except VersionMoved:
            return await self._taken_by(wake_id, digest)
        return run_id

    async def stored(self, run_id: str) -> Run | None:
        """Raises ValueError (its kind Damaged), and NewerVersion for a run that a newer agent has moved on."""
        journal = await self._journals.of(run_id)
        return journal.run() if journal else None

    async def commit(self, commit: Commit) -> None:
        entry = commit.entry
        self._quarantine.check(entry.run_id)
        await self._permitted()
        journal = self._journals.known.get(entry.run_id)
        if journal is None or (journal.version, journal.head) != (entry.seq - 1, entry.previous):
            raise moved(entry)
        await self._append(commit, journal)

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        del limit  # what is not dispatched is under a message
        return []

    async def due_turns(self, now: datetime, limit: int) -> list[tuple[str, int]]:
        """Runs that are due, with their newest entries."""
        return [(run_id, self.version(run_id)) for run_id in await self.due(now, limit)]

    def overdue_turns(self) -> list[tuple[str, int]]:
        """Entries that no message led to, and of whose turns nothing was seen in time."""
        return [(run_id, seq) for until, run_id, seq in self._expected.values() if until <= monotonic()]

    def turn_seen(self, turn: str) -> None:
        self._expected.pop(turn, None)

    async def entries_under(self, run_id: str, message: WorkMessage) -> set[int]:
        """Entries under earlier deliveries of a message, and the one that a turn was queued for."""
        asked = message.turn.removeprefix(turn_id(run_id, 0)[:-1])
        found = {int(asked)} if asked.isdecimal() else set[int]()
        if message.delivered > 1:
            found |= {
                seq for seq, by in (await self._journals.whole(run_id)).by.items() if by.startswith(message.prefix)
            }
        return found

    async def may_call_model(self, run_id: str, call: int) -> bool:
        message, by = CURRENT_MESSAGE.get(), (await self._journals.whole(run_id)).under_way(call)
        return message is not None and (by is None or message.has(by))

    async def is_current(self, run_id: str, version: int) -> bool:
        journal = self._journals.known.get(run_id) or await self._journals.of(run_id)
        if journal is None:
            return version == 0
        await self._journals.expect_newest(journal)
        return journal.expected == version

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        journal = self._journals.known.get(run_id) or await self._journals.of(run_id)
        return journal is not None and any(by != str(CURRENT_MESSAGE.get()) for by in journal.reserved(call, since))

    async def run_by_wake(self, wake_id: str) -> str | None:
        if known := await super().run_by_wake(wake_id):
            return known
        found = await self._log.newest(subjects.stored_wake(wake_id))
        return found.subject.rpartition(".")[2] if found else None

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        if (journal := await self._journals.of(run_id)) is None or after >= journal.version:
            return []
        most = min(journal.version - after, ALL if limit is None else limit)
        begins = journal.positions.get(after, 0)
        facts = await self._log.read(journal.subject, begins, most if begins or not after else after + most)
        entries = [entry_in(fact, run_id).entry for fact in facts]
        return [entry for entry in entries if entry.seq > after][:most]

    async def signals(self, run_id: str, signal_id: str) -> Sequence[Entry]:
        said = [entry for entry in await self.entries(run_id) if entry.kind == "SignalReceived"]
        return [entry for entry in said if entry.record().event.signal.signal_id == signal_id]  # type: ignore[union-attr]

    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        found = await self._log.read(subjects.STORED_RUNS, after, limit)
        rows = [(fact, row_in(fact)) for fact in found]
        return [JournalPosition(fact.seq, fact.subject.rpartition(".")[2], row.seq) for fact, row in rows if row]

    def newest(self) -> int:
        return self._index.reached

    async def row(self, run_id: str) -> tuple[Any, ...]:
        """As the header of its newest message says, which has only the beginnings of summary and goal."""
        journal, run = await self._journals.of(run_id), await self.stored(run_id)
        if run is None or journal is None or (row := journal.row) is None:
            return ()
        return row.seq, row.status.value, row.due_at, str(run.state.summary), run.state.brief.goal

    async def positions(self, run_id: str) -> tuple[int, ...]:
        return tuple((await self._journals.whole(run_id)).positions.values())

    async def artifacts(self) -> dict[str, Sequence[str]]:
        some = [run_id for (run_id,) in await self._database.read(self._sql["with_artifacts"])]
        return {run_id: run.state.artifacts for run_id in some if (run := await self.load(run_id))}

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        late = max(0, await self._log.end() - LATE_FACTS)
        rows = [(fact, row_in(fact)) for fact in await self._log.read(subjects.STORED_RUNS, late) if fact.at >= since]
        return [(fact.at, fact.subject.rpartition(".")[2], row.call) for fact, row in rows if row and row.call]

    async def place_of(self, subject: str) -> int:
        if (newest := await self._log.newest(subject)) is None:
            return 0
        await self._index.wait(newest.seq)
        return newest.seq

    async def say(self, *words: SideRecord, after: int | None) -> Sequence[SideRecord]:
        """But for those where another process was faster."""
        said = list[SideRecord]()
        for word in words:
            with contextlib.suppress(Moved):
                await self._index.wait(await self._log.append(word.subject, b"", after=after, headers=word.header))
                said.append(word)
        return said

    async def purge(self, wake_id: str, run_id: str) -> None:
        of_run = subjects.stored_run(wake_id, run_id), subjects.stored_seen(run_id), subjects.stored_bare(run_id)
        for subject in of_run:
            await self._log.purge(subject)

    async def total(self) -> int:
        return int((await self._log.extent()).size)

    def applied(self, facts: Sequence[StoredMessage]) -> None:
        """Called on the loop, in the order of the facts."""
        for fact in facts:
            of_run = matches(subjects.STORED_RUNS, fact.subject)
            match row_in(fact) if of_run else record_in(fact.subject, fact.headers.get(ROW, "")):
                case RunRow() as row:
                    self._heard(fact.subject.rpartition(".")[2], row, fact.seq)
                case TombstoneRecord(stone=stone):
                    self._journals.known.pop(stone.run_id, None)
                case None if of_run:
                    self._journals.known.pop(fact.subject.rpartition(".")[2], None)  # who reads it finds out what it is
                case HaltRecord(by=by, halt=halt) if by != self.me and fact.seq > self._began_at:
                    self._let_hear(lambda halt=halt: self.on_halt(halt))  # type: ignore[misc] # it is a Halt

    async def _permitted(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error

    async def _taken_by(self, wake_id: str, digest: str) -> str:
        newest = await self._log.newest(subjects.stored_wake(wake_id))
        row = row_in(newest) if newest else None
        if newest is None or row is None:
            raise TryAgain(
                f"the wake {wake_id!r} names a run that this agent cannot read: an agent of a newer version took "
                "it, or its entries are damaged. Ask an agent of the newest version, or use a new wake_id"
            )
        return the_same(wake_id, newest.subject.rpartition(".")[2], row.digest == digest)

    async def _append(self, commit: Commit, journal: Journal, *, among: str = "") -> None:
        """Returns once it is stored, and in the index unless that fell behind. Raises VersionMoved, TryAgain."""
        entry = commit.entry
        fact, row = told(commit, journal, in_hand=not among)  # a new run begins by a turn of its own
        try:
            position = await self._say(journal, encoded(fact), row, among)
        except Moved as error:
            if not among:
                await self._journals.expect_newest(journal)
            raise VersionMoved(f"run {entry.run_id}: another agent was faster with entry {entry.seq}") from error
        if journal.version == entry.seq - 1:
            journal.add(fact, row, position)
            self._journals.remember(journal)
        with contextlib.suppress(TryAgain):
            await self._index.wait(position)

    async def _say(self, journal: Journal, body: bytes, row: RunRow, among: str) -> int:
        self._own[row.head] = 0
        try:
            position = await self._log.append(
                journal.subject, body, after=journal.position, headers=row.header, among=among
            )
        except asyncio.CancelledError:
            self._own.pop(row.head, None)
            raise
        except Exception:
            if (position := self._own.pop(row.head, 0)) > 0:
                return position  # it is stored, whatever was answered
            raise
        if self._own.get(row.head):
            del self._own[row.head]
        else:
            self._own[row.head] = ACKNOWLEDGED
        return position

    def _heard(self, run_id: str, row: RunRow, position: int) -> None:
        if row.by == turn_id(run_id, row.seq) and position > self._began_at:
            self._expect_turn(run_id, row.seq)
        elif self._expected:
            self.turn_seen(row.by.partition("/")[0])
        if row.head in self._own:
            if self._own[row.head] == ACKNOWLEDGED:
                del self._own[row.head]
            else:
                self._own[row.head] = position
            return
        if journal := self._journals.known.get(run_id):
            journal.expected = max(journal.expected, row.seq)
        told = RemoteCommit(
            run_id=run_id,
            seq=row.seq,
            position=position,
            by=row.by,
            status=row.status,
            caller=row.caller,
            paid_usd=row.paid_usd,
            opened=row.opened,
            size=row.size,
            call=row.call,
        )
        if position > self._began_at:
            self._let_hear(lambda: self.on_elsewhere(told))

    def _let_hear(self, hears: Callable[[], object]) -> None:
        try:
            hears()
        except Exception:  # who is told must not keep the index from going on
            logger.exception("what another agent stored could not be told of")

    def _expect_turn(self, run_id: str, seq: int) -> None:
        self._expected[turn_id(run_id, seq)] = monotonic() + self.turn_expected_within_s, run_id, seq


def _unheard(_: object) -> None: ...
