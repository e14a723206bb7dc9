"""The run store that several agents share: a log of entries, an index of it in each process, and runs on demand.

    decide ─▶ append behind the run's newest entry ─▶ acknowledged ─▶ done

A run is read from its newest snapshot on, then from where the last read ended. The index follows a moment later, for
own entries, too; only a new run is in it before it is acknowledged. A commit with an unknown outcome raises
TryAgain, and its message is delivered again; if it was stored after all, it counts as a commit of another process.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_service.errors import Damaged, VersionMoved
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, turn_id
from agent_service.run.journal import Commit, Entry, Run, growth_of
from agent_service.run.ports import JournalPosition, RecordedCall
from agent_service.store.database import FILE, MIGRATIONS, apply_message, clear_index
from agent_service.store.journals import Journal, JournalCache
from agent_service.store.messages import (
    ROW,
    SNAPSHOT_EVERY,
    ArtifactTombstoneRecord,
    Beside,
    DismissalRecord,
    HaltRecord,
    RemoteCommit,
    RunRow,
    TombstoneRecord,
    encoded,
    entry_in,
    message_of,
    record_in,
    row_in,
)
from agent_service.store.moving import require_runs_here
from agent_service.store.runs import LeaseCheck, RunStore, no_lease, same_wake, version_moved
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import StoredMessage, subject_matches
from groundwork.nats.shared_log import ALL, AppendConflict, SharedLog
from groundwork.service.errors import TryAgain
from groundwork.service.machine import monotonic, token_hex
from groundwork.service.serving import ServiceContext
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.replica import Replica, open_copy
from schemas import subjects
from schemas.status import Halt
from schemas.values import replace

RECENT_MESSAGES = 2000
"""Messages searched at most for recent model calls."""

logger = logging.getLogger(__name__)


class SharedStore(RunStore):
    """`held` raises unless this process may commit. `on_remote_commit` and `on_halt` hear of commits by other
    processes.
    """

    turn_expected_within_s = 5.0
    """After it, the agent that stored an entry without a message may have died before it queued the turn."""

    def __init__(self, database: SqliteFile, log: SharedLog, index: Replica, *, held: LeaseCheck) -> None:
        super().__init__(database, held)
        self._log, self._index, self.me = log, index, token_hex(8)
        self._expected: dict[str, tuple[float, str, int]] = {}
        """Deadline, run and entry of each turn that is not seen yet."""
        self._journals = JournalCache(database, log, self._quarantine, self.caught_up)
        self._own: dict[str, asyncio.Future[int]] = {}
        """Entries of this process that are not in the index yet, by hash; their positions there."""
        self._appended = 0
        """Position of the newest entry of this process."""
        self._began_at = float("inf")
        """Messages up to this position are no news."""
        self.on_remote_commit: Callable[[RemoteCommit], object] = lambda _: None
        self.on_halt: Callable[[Halt], object] = lambda _: None

    async def begin(self) -> None:
        """Must be awaited before anything else, once the index has caught up."""
        self._began_at = self._index.reached
        for run_id, seq in await self.database.read(self._sql["overdue_turns"]):
            self._expect_turn(run_id, seq)

    async def caught_up(self) -> None:
        await self._index.wait(await self._log.end())

    async def accept(self, commit: Commit, digest: str) -> str:
        run_id, wake_id = commit.entry.run_id, commit.state.wake_id
        for known, known_digest in self.database.look_up(self._sql["wake"], (wake_id,)):
            return same_wake(wake_id, known, same=known_digest == digest)
        await self._require_lease()
        if self.version(run_id):
            raise version_moved(commit.entry)
        journal = Journal(run_id, subjects.stored_run(wake_id, run_id), digest=digest)
        try:
            await self._append(commit, journal, among=subjects.stored_wake(wake_id))
        except VersionMoved:
            newest = await self._log.newest(subjects.stored_wake(wake_id))
            if newest is None or (row := row_in(newest)) is None:
                raise TryAgain(
                    f"the wake {wake_id!r} names a run that this agent cannot read: an agent of a newer version took "
                    "it, or its entries are damaged. Ask an agent of the newest version, or use a new wake_id"
                ) from None
            return same_wake(wake_id, _run_id(newest), same=row.digest == digest)
        return run_id

    async def load(self, run_id: str, version: int = 0) -> Run | None:
        del version  # the journal has each entry that this process has stored or seen
        try:
            journal = await self._journals.of(run_id)
            return journal.run() if journal else None
        except Damaged as error:
            self.quarantine(error)
            raise

    async def commit(self, commit: Commit) -> None:
        entry = commit.entry
        self._quarantine.check(entry.run_id)
        await self._require_lease()
        journal = self._journals.known.get(entry.run_id)
        if journal is None or (journal.version, journal.head) != (entry.seq - 1, entry.previous):
            raise version_moved(entry)
        await self._append(commit, journal)

    def overdue_turns(self) -> list[tuple[str, int]]:
        """Entries without a message, whose turns were not seen in time."""
        return [(run_id, seq) for until, run_id, seq in self._expected.values() if until <= monotonic()]

    def turn_seen(self, turn: str) -> None:
        self._expected.pop(turn, None)

    async def entries_under(self, run_id: str, message: InboundMessage) -> set[int]:
        """Entries under earlier deliveries of a message, and the one that a turn was queued for. `load` has them from
        then on, though the index may be behind."""
        asked = message.turn.removeprefix(turn_id(run_id, 0)[:-1])
        found = {int(asked)} if asked.isdecimal() else set[int]()
        if found and (journal := await self._journals.of(run_id)):
            if message.delivered > 1:  # the log may have lost the entry
                await self._journals.expect_newest(journal)
            else:
                journal.expected = max(journal.expected, *found)
        if message.delivered > 1:
            committed_by = (await self._journals.whole(run_id)).by
            found |= {seq for seq, by in committed_by.items() if by.startswith(message.prefix)}
        return found

    async def may_call_model(self, run_id: str, call: int) -> bool:
        message, by = CURRENT_MESSAGE.get(), (await self._journals.whole(run_id)).under_way(call)
        return message is not None and (by is None or message.owns(by))

    async def is_current(self, run_id: str, version: int) -> bool:
        if journal := await self._journals.of(run_id):
            await self._journals.expect_newest(journal)
        return journal is None or journal.expected == version

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        journal = self._journals.known.get(run_id) or await self._journals.of(run_id)
        return journal is not None and any(by != str(CURRENT_MESSAGE.get()) for by in journal.reserved(call, since))

    async def run_by_wake(self, wake_id: str) -> str | None:
        if known := await super().run_by_wake(wake_id):
            return known
        found = await self._log.newest(subjects.stored_wake(wake_id))
        return _run_id(found) if found else None

    async def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        if (journal := await self._journals.of(run_id)) is None or after >= journal.version:
            return []
        most = min(journal.version - after, ALL if limit is None else limit)
        begins = journal.positions.get(after, 0)
        messages = await self._log.read(journal.subject, begins, most if begins or not after else after + most)
        entries = [entry_in(message, run_id).entry for message in messages]
        return [entry for entry in entries if entry.seq > after][:most]

    async def places(self, after: int, limit: int) -> Sequence[JournalPosition]:
        await self._index.wait(self._appended)
        messages = await self._log.read(subjects.STORED_RUNS, after, limit)
        here = self._index.reached  # `load` and `entries` may not have later ones
        seen = [one for one in messages if one.seq <= here]
        return [JournalPosition(one.seq, _run_id(one), row.seq if (row := row_in(one)) else 0) for one in seen]

    def newest(self) -> int:
        return max(self._index.reached, self._appended)

    def head(self, run_id: str) -> tuple[int, str]:
        """Also of an own entry that is not in the index yet: an ending is told with it."""
        journal = self._journals.known.get(run_id)
        return max(super().head(run_id), (journal.version, journal.head) if journal else (0, ""))

    async def row(self, run_id: str) -> tuple[Any, ...]:
        """Summary and goal come from the run, because the header has only their beginnings."""
        journal, run = await self._journals.of(run_id), await self.load(run_id)
        if run is None or journal is None or (row := journal.row) is None:
            return ()
        return row.seq, row.status.value, row.due_at, str(run.state.summary), run.state.brief.goal

    async def positions(self, run_id: str) -> tuple[int, ...]:
        return tuple((await self._journals.whole(run_id)).positions.values())

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        begins = max(0, await self._log.end() - RECENT_MESSAGES)
        recent = [one for one in await self._log.read(subjects.STORED_RUNS, begins) if one.at >= since]
        return [(one.at, _run_id(one), row.call) for one in recent if (row := row_in(one)) and row.call]

    async def newest_position(self, subject: str) -> int:
        if (newest := await self._log.newest(subject)) is None:
            return 0
        await self._index.wait(newest.seq)
        return newest.seq

    async def put(self, *records: Beside, after: int | None) -> Sequence[Beside]:
        stored = list[Beside]()
        for record in records:
            with contextlib.suppress(AppendConflict):
                await self._index.wait(await self._log.append(record.subject, b"", after=after, headers=record.header))
                stored.append(record)
        return stored

    def mark_dispatched(self, run_id: str, seq: int) -> None:
        """Notes nothing: a message stands for what is not dispatched."""

    async def undispatched(self, limit: int) -> Sequence[tuple[str, range]]:
        del limit
        return ()

    async def purge(self, wake_id: str, run_id: str) -> None:
        beside = (subjects.stored_beside(of.kind, run_id) for of in (DismissalRecord, ArtifactTombstoneRecord))
        for subject in (subjects.stored_run(wake_id, run_id), *beside):
            await self._log.purge(subject)

    async def total_bytes(self) -> int:
        return int((await self._log.extent()).size)

    def applied(self, messages: Sequence[StoredMessage]) -> None:
        """Called on the loop with what is in the index now, in order."""
        for message in messages:
            run_id, record = _run_id(message), record_in(message.subject, message.headers.get(ROW, ""))
            if subject_matches(subjects.STORED_RUNS, message.subject):
                if row := row_in(message):
                    self._applied_row(run_id, row, message.seq)
                else:
                    self._journals.known.pop(run_id, None)  # the next read finds out why
            elif isinstance(record, TombstoneRecord):
                self._journals.known.pop(record.run_id, None)
            elif isinstance(record, HaltRecord) and record.by != self.me and message.seq > self._began_at:
                self._notify(self.on_halt, record.halt)

    async def _append(self, commit: Commit, journal: Journal, *, among: str = "") -> None:
        """Returns once it is stored; a new run is also in the index then, unless that fell behind, and begins by a turn
        of its own. Raises VersionMoved, TryAgain."""
        entry, state, own = commit.entry, commit.state, turn_id(commit.entry.run_id, commit.entry.seq)
        by = own if among else str(CURRENT_MESSAGE.get() or own)
        if whole := entry.seq - journal.whole_seq >= SNAPSHOT_EVERY:
            commit = replace(commit, brief=state.brief, growth=growth_of(None, state))
        message = message_of(commit, by, whole=whole)
        body, up_to = encoded(message), entry.seq if state.final else 0
        whole_at, digest = journal.whole_at, journal.digest
        row = RunRow.of(commit, journal.row, by=by, dispatched=up_to, digest=digest, whole_at=whole_at, size=len(body))
        try:
            position = await self._append_own(journal, body, row, among)
        except AppendConflict as error:
            if not among:
                await self._journals.expect_newest(journal)
            raise VersionMoved(f"run {entry.run_id}: another agent was faster with entry {entry.seq}") from error
        self._appended = max(self._appended, position)
        if journal.version == entry.seq - 1:
            journal.add(message, row, position, Run(state=state, head=entry.hash))
            self._journals.remember(journal)
        if among:
            with contextlib.suppress(TryAgain):
                await self._index.wait(position)

    async def _append_own(self, journal: Journal, body: bytes, row: RunRow, among: str) -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._own[row.head] = seen
        try:
            return await self._log.append(
                journal.subject, body, after=journal.position, headers=row.header, among=among
            )
        except (Exception, asyncio.CancelledError) as error:
            self._own.pop(row.head, None)
            if isinstance(error, asyncio.CancelledError) or not seen.done():
                raise
            return seen.result()  # the index has it, whatever was answered

    def _applied_row(self, run_id: str, row: RunRow, position: int) -> None:
        if row.by == turn_id(run_id, row.seq) and position > self._began_at:
            self._expect_turn(run_id, row.seq)
        elif self._expected:
            self.turn_seen(row.by.partition("/")[0])
        if journal := self._journals.known.get(run_id):
            journal.expected = max(journal.expected, row.seq)
        if seen := self._own.pop(row.head, None):
            seen.set_result(position)
            return
        if position > self._began_at:
            self._notify(self.on_remote_commit, RemoteCommit(run_id, position, row))

    def _notify(self, listener: Callable[[Any], object], news: RemoteCommit | Halt) -> None:
        try:
            listener(news)
        except Exception:  # a listener's error must not stop the index
            logger.exception("what another agent stored could not be told of")

    def _expect_turn(self, run_id: str, seq: int) -> None:
        self._expected[turn_id(run_id, seq)] = monotonic() + self.turn_expected_within_s, run_id, seq


def _run_id(message: StoredMessage) -> str:
    return message.subject.rpartition(".")[2]


@contextlib.asynccontextmanager
async def open_store(ground: ServiceContext) -> AsyncIterator[SharedStore]:
    """Raises Misconfigured, and TryAgain."""
    runs = log_of_runs(ground.link)
    await require_runs_here(runs)
    async with open_shared(ground.folder, runs, held=ground.lease.ensure_held) as shared:
        yield shared


def log_of_runs(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_RUNS, root=subjects.STORE, headers_only=True)


@contextlib.asynccontextmanager
async def open_shared(folder: Path, log: SharedLog, *, held: LeaseCheck = no_lease) -> AsyncIterator[SharedStore]:
    """The store of the log, its index in `folder` up to date. Raises Misconfigured, also later, in a group."""
    async with open_copy(folder / FILE, MIGRATIONS) as database:
        replica = Replica(log, database, apply_message, forget=clear_index)
        store = SharedStore(database, log, replica, held=held)
        replica.applied = store.applied
        async with replica.following():
            await store.begin()
            yield store
