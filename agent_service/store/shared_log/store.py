"""The run store that several agents share: a log of facts, of which each process has a copy in SQLite.

    decide ─▶ append, if the run's newest fact is the one it was decided on ─▶ acknowledged ─▶ the copy has it ─▶ done

A commit with an unknown outcome raises TryAgain: its message is delivered again. If it was stored after all,
`on_elsewhere` hears of it as of those of other processes. What an entry asks for is done under its message (`in_hand`).
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from agent_service.core.waiting import FINAL
from agent_service.errors import Changed, Damaged, Newer, VersionMoved, WakeConflict
from agent_service.run.changes import Elsewhere
from agent_service.run.in_hand import IN_HAND, Message, own_turn
from agent_service.run.journal import Commit, Run
from agent_service.run.ports import Undispatched, Wake
from agent_service.store.rows import rows_of
from agent_service.store.shared_log.appending import Appending
from agent_service.store.shared_log.applying import Applying, Skipped
from agent_service.store.shared_log.facts import EntryFact, HaltFact
from agent_service.store.shared_log.ports import Copy, Log
from agent_service.store.shared_log.retention import SharedForgetting
from agent_service.store.shared_log.side_tables import SharedHalts, SharedInbox
from agent_service.store.sqlite import Held, SqliteStore, moved
from groundwork.nats.publishing import StoredMessage
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic, token_hex
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects
from schemas.status import Halt

T = TypeVar("T")

FOLLOWED_WITHIN_S = 5.0
"""An entry that no message led to is followed by its turn within it, or its agent died before it queued that."""

logger = logging.getLogger(__name__)


def _nobody(_: object) -> None: ...


class SharedStore(SqliteStore):
    """`held` raises unless this process may commit. `on_elsewhere`, `on_halt` hear what other processes commit."""

    def __init__(
        self,
        database: SqliteFile,
        log: Log,
        copy: Copy,
        applying: Applying,
        *,
        held: Held,
    ) -> None:
        super().__init__(database, held)
        self._log, self._copy, self._me = log, copy, token_hex(8)
        self._applying = applying
        self.followed_within_s = FOLLOWED_WITHIN_S
        self._expected: dict[str, tuple[float, str, int]] = {}
        """Turns not seen yet: until when there is time, and the entry that asks for each."""
        self.forgetting = SharedForgetting(database, self._intact, log, copy)
        self._appending = Appending(log, copy)
        self._newer: set[str] = set()
        self._began_at = float("inf")
        """The position up to which nothing is news."""
        self.inbox = SharedInbox(database, log, copy)
        self.halts = SharedHalts(database, log, copy, self._me)
        self.on_elsewhere: Callable[[Elsewhere], object] = _nobody
        self.on_halt: Callable[[Halt], object] = _nobody

    async def begin(self) -> None:
        """From what the copy has. To be awaited before anything else, once that has caught up."""
        self._began_at = self._copy.reached
        for run_id, level, why, _ in await self._database.read(self._sql["skipped"]):
            self._leave_alone(Skipped(run_id=run_id, level=level, why=why))
        for run_id, seq in await self._database.read(self._sql["unfollowed"]):
            self._expect_turn(run_id, seq)

    async def caught_up(self) -> None:
        await self._copy.wait(await self._log.end())

    async def accept(self, wake: Wake, commit: Commit) -> str:
        """As the port says; VersionMoved when another wake has taken the run id."""
        if known := self._named(wake):
            return known
        await self._permitted()
        if self.version(commit.entry.run_id):
            raise moved(commit.entry)
        asked = wake.wake_id, wake.digest, microseconds(commit.state.accepted_at)
        by = own_turn(commit.entry.run_id, commit.entry.seq)
        fact = EntryFact.of(rows_of(commit), by=by, caller=commit.state.brief.caller, asked=asked)
        try:
            await self._appending.append(fact, 0)
        except VersionMoved:
            return self._named(wake) or self._refused(wake, commit)
        return commit.entry.run_id

    async def load(self, run_id: str) -> Run | None:
        """As the port says; Newer for a run that a newer version of the agent has moved on."""
        self._quarantine.check(run_id)
        await self._newest_here(run_id)
        return await self._loaded(run_id)

    async def commit(self, commit: Commit) -> None:
        entry = commit.entry
        self._quarantine.check(entry.run_id)
        await self._permitted()
        by = str(IN_HAND.get() or own_turn(entry.run_id, entry.seq))
        told = entry.seq if commit.state.status in FINAL else 0
        fact = EntryFact.of(rows_of(commit), by=by, caller=commit.state.brief.caller, told=told)
        await self._appending.append(fact, self._position_of(commit))

    async def undispatched(self, limit: int) -> Sequence[Undispatched]:
        del limit  # what is not dispatched is under a message
        return []

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return [run_id for run_id, _ in await self.due_turns(now, limit)]

    async def due_turns(self, now: datetime, limit: int) -> list[tuple[str, int]]:
        """Runs that are due, with their newest entries."""
        found = dict(await self._database.read(self._sql["due_turns"], (microseconds(now), limit)))
        return [(run_id, found[run_id]) for run_id in self._quarantine.without(found) if run_id not in self._newer]

    def unfollowed(self) -> list[tuple[str, int]]:
        """Entries that no message led to, and of whose turns nothing was seen in time."""
        return [(run_id, seq) for until, run_id, seq in self._expected.values() if until <= monotonic()]

    def saw_turn(self, turn: str) -> None:
        self._expected.pop(turn, None)

    async def led_to_by(self, run_id: str, message: Message) -> set[int]:
        values = run_id, message.prefix, message.turn or None
        return {seq for (seq,) in self._database.look_up(self._sql["led_to_by"], values)}

    async def may_ask(self, run_id: str, call: int) -> bool:
        message = IN_HAND.get()
        reserved = self._database.look_up(self._sql["reserved"], (run_id, 0, call))
        return message is not None and all(message.has(by) for (by,) in reserved[-1:])

    async def is_current(self, run_id: str, version: int) -> bool:
        return await self._newest_here(run_id) == version

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        reserved = self._database.look_up(self._sql["reserved"], (run_id, since, call))
        return any(by != str(IN_HAND.get()) for (by,) in reserved)

    async def run_of(self, wake_id: str) -> str | None:
        if known := await super().run_of(wake_id):
            return known
        if fact := await self._log.newest(subjects.stored_wake(wake_id)):
            await self._copy.wait(fact.seq)
        return await super().run_of(wake_id)

    def applied(self, facts: Sequence[StoredMessage]) -> None:
        """Called on the loop, in the order of the facts."""
        for fact in facts:
            match self._applying.outcome(fact):
                case EntryFact() as entry:
                    self._heard(entry, fact.seq)
                case HaltFact(by=by, halt=halt) if by != self._me:
                    self._tell_of(self.on_halt, halt, fact.seq)
                case Skipped() as skipped:
                    self._leave_alone(skipped)

    async def _permitted(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error

    def _named(self, wake: Wake) -> str:
        for run_id, digest in self._database.look_up(self._sql["wake"], (wake.wake_id,)):
            if digest != wake.digest:
                raise WakeConflict(wake.wake_id, run_id)
            return str(run_id)
        return ""

    def _refused(self, wake: Wake, commit: Commit) -> str:
        if self.version(commit.entry.run_id):
            raise moved(commit.entry)
        raise TryAgain(
            f"the wake {wake.wake_id!r} names a run that this agent cannot read: an agent of a newer version took it, "
            "or its first entry is damaged. Ask an agent of the newest version, or use a new wake_id"
        )

    def _position_of(self, commit: Commit) -> int:
        """That of the fact on which the commit was decided; 0 for the first one of its subject. Raises VersionMoved."""
        entry = commit.entry
        version, position, head = self._newest_in_copy(entry.run_id)
        if version == 0 or (version, head.hex()) != (entry.seq - 1, entry.previous):
            raise moved(entry)
        return 0 if version == 1 else position

    def _newest_in_copy(self, run_id: str) -> tuple[int, int, bytes]:
        for version, position, head in self._database.look_up(self._sql["newest_of"], (run_id,)):
            return version, position, head
        return 0, 0, b""

    async def _newest_here(self, run_id: str) -> int:
        """0 where there is no such run. Raises TryAgain, and Newer and Damaged where the copy cannot take it in."""
        fact = await self._log.newest(subjects.stored_run(run_id))
        if fact is not None:
            await self._copy.wait(fact.seq)
        elif self._newest_in_copy(run_id)[0] != 1:
            await self.caught_up()
        if run_id in self._newer:
            raise Newer(run_id)
        self._quarantine.check(run_id)
        version, position, _ = self._newest_in_copy(run_id)
        if fact is not None and position < fact.seq and version:
            raise Damaged(run_id, f"what lies at {fact.seq} of the log of all runs")
        return version

    def _heard(self, entry: EntryFact, position: int) -> None:
        if entry.by == own_turn(entry.run_id, entry.seq) and position > self._began_at:
            self._expect_turn(entry.run_id, entry.seq)
        elif self._expected:
            self.saw_turn(entry.by.partition("/")[0])
        if self._appending.expected(entry):
            return
        told = Elsewhere(
            entry=entry.entry(),
            position=position,
            by=entry.by,
            status=entry.status,
            caller=entry.caller,
            paid_usd=entry.paid_usd,
            opened=entry.opened[1] if entry.opened else 0,
        )
        self._tell_of(self.on_elsewhere, told, position)

    def _tell_of(self, hears: Callable[[T], object], news: T, at: int) -> None:
        if at <= self._began_at:
            return
        try:
            hears(news)
        except Exception:  # who is told must not keep the copy from going on
            logger.exception("what another agent stored could not be told of")

    def _leave_alone(self, skipped: Skipped) -> None:
        if skipped.level and skipped.run_id:
            self._newer.add(skipped.run_id)
        elif skipped.run_id:
            self.quarantine(Changed(skipped.run_id, f"a fact in the log of all runs: {skipped.why}"))
        else:
            logger.warning("a fact in the log of all runs is skipped", extra={"why": skipped.why})

    def _expect_turn(self, run_id: str, seq: int) -> None:
        self._expected[own_turn(run_id, seq)] = monotonic() + self.followed_within_s, run_id, seq
