"""The run store that several agents share: a log of facts, of which each process has a copy in SQLite.

    decide ─▶ append, if the run's newest fact is the one it was decided on ─▶ acknowledged ─▶ the copy has it ─▶ done

A commit with an unknown outcome raises TryAgain: its caller loads and decides again. If it was stored after all,
`on_elsewhere` hears of it as of commits of other members, because no process has begun its effects.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from agent_service.errors import Changed, Damaged, Newer, VersionMoved, WakeConflict
from agent_service.run.journal import Commit, Run
from agent_service.run.moments import Elsewhere
from agent_service.run.ports import Untold, Wake
from agent_service.store.rows import rows_of
from agent_service.store.shared_log.appending import Appending, OwnEntries, Telling
from agent_service.store.shared_log.applying import Applying, Skipped
from agent_service.store.shared_log.facts import EntryFact, HaltFact, ToldFact
from agent_service.store.shared_log.ownership import Copy, Log, Members, Share
from agent_service.store.shared_log.retention import SharedForgetting
from agent_service.store.shared_log.side_tables import SharedHalts, SharedInbox
from agent_service.store.sqlite import Held, SqliteStore, moved
from groundwork.nats.shared_log import Fact
from groundwork.service.errors import Failure, TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects
from schemas.status import Halt

T = TypeVar("T")

log = logging.getLogger(__name__)


def _nobody(_: object) -> None: ...


class SharedStore(SqliteStore):
    """`held` raises unless this process is the member. `on_elsewhere`, `on_halt` hear what other members commit."""

    def __init__(
        self,
        database: SqliteFile,
        standing_on: tuple[Log, Copy, Members],
        applying: Applying,
        *,
        held: Held,
    ) -> None:
        super().__init__(database, held)
        self._log, self._copy, self._members = standing_on
        self._applying = applying
        self._share = Share(database, self._members)
        self._own = OwnEntries()
        self.forgetting = SharedForgetting(database, self._intact, standing_on)
        self._appending = Appending(self._log, self._copy)
        self._newer: set[str] = set()
        self._began_at = float("inf")
        """The position up to which nothing is news."""
        self._telling = Telling(self._own, self._log, self._members.me, self._permitted)
        self.inbox = SharedInbox(database, self._log, self._copy, self._members.me)
        self.halts = SharedHalts(database, self._log, self._copy, self._members.me)
        self.on_elsewhere: Callable[[Elsewhere], object] = _nobody
        self.on_halt: Callable[[Halt], object] = _nobody

    async def begin(self) -> None:
        """From what the copy has. To be awaited before anything else, once that has caught up."""
        self._began_at = self._copy.reached
        for run_id, level, why, _ in await self._database.read(self._sql["skipped"]):
            self._leave_alone(Skipped(run_id=run_id, level=level, why=why))

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
        fact = EntryFact.of(rows_of(commit), by=self._members.me, caller=commit.state.brief.caller, asked=asked)
        try:
            await self._append(fact, 0)
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
        after = self._position_of(commit)
        told = self._own.to_tell(entry.run_id)
        try:
            caller = commit.state.brief.caller
            fact = EntryFact.of(rows_of(commit), by=self._members.me, caller=caller, told=told)
            await self._append(fact, after)
        except BaseException:
            self._own.not_told(entry.run_id, told)
            raise

    def told(self, run_id: str, seq: int, *, since: int = 1) -> None:
        if self._own.done(run_id, since, seq):
            self._telling.is_due.set()

    async def keep_telling(self) -> None:
        await self._telling.keep()

    async def tell(self) -> None:
        await self._telling.tell()

    async def untold(self, limit: int) -> Sequence[Untold]:
        untold = await self._share.untold(self._copy.reached)
        left = ((run.run_id, self._own.left(run.run_id, run.seqs)) for run in untold)
        found = [Untold(run_id=run_id, seqs=seqs) for run_id, seqs in left if seqs][:limit]
        for run in found:
            self._own.add(run.run_id, run.seqs)
        return found

    async def due(self, now: datetime, limit: int) -> Sequence[str]:
        return self._workable(await self._share.due(now), limit)

    async def queued(self, limit: int) -> Sequence[str]:
        return self._workable(await self._share.queued(), limit)

    async def held(self) -> Sequence[str]:
        return self._workable(await self._share.held())

    async def ours(self, run_ids: Sequence[str]) -> Sequence[str]:
        return [run_id for run_id in run_ids if self._share.is_ours(run_id)]

    async def sees_to(self, run_id: str, seq: int) -> bool:
        written = self._database.look_up(self._sql["written"], (run_id, seq))
        return any(self._members.mine(by, run_id) for _, _, by in written)

    async def is_current(self, run_id: str, version: int) -> bool:
        return await self._newest_here(run_id) == version

    async def superseded(self, run_id: str, call: int, since: int) -> bool:
        reserved = self._database.look_up(self._sql["reserved"], (run_id, since, call))
        return any(by != self._members.me for (by,) in reserved)

    async def run_of(self, wake_id: str) -> str | None:
        if known := await super().run_of(wake_id):
            return known
        if fact := await self._log.newest(subjects.stored_wake(wake_id)):
            await self._copy.wait(fact.seq)
        return await super().run_of(wake_id)

    def applied(self, facts: Sequence[Fact]) -> None:
        """Called on the loop, in the order of the facts."""
        for fact in facts:
            match self._applying.outcome(fact):
                case EntryFact() as entry:
                    self._heard(entry, fact.seq)
                case ToldFact(by=by, runs=runs) if by == self._members.me:
                    for run_id, told in runs.items():
                        self._own.heard(run_id, told)
                case HaltFact(by=by, halt=halt) if by != self._members.me:
                    self._tell_of(self.on_halt, halt, fact.seq)
                case Skipped() as skipped:
                    self._leave_alone(skipped)

    async def _permitted(self) -> None:
        try:
            await self._held()
        except Failure as error:
            raise TryAgain(f"nothing is stored: {error}") from error

    async def _append(self, fact: EntryFact, after: int) -> None:
        with self._own.coming(fact.run_id, fact.seq):
            await self._appending.append(fact, after)

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
        if entry.by == self._members.me:
            self._own.heard(entry.run_id, entry.told)
            if self._own.say_again(entry.run_id):  # with an earlier try of the same entry, which has won
                self._telling.is_due.set()
            if self._appending.expected(entry):
                return
            if position > self._began_at:
                self._own.add(entry.run_id, (entry.seq,))
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
            log.exception("what another agent stored could not be told of")

    def _leave_alone(self, skipped: Skipped) -> None:
        if skipped.level and skipped.run_id:
            self._newer.add(skipped.run_id)
        elif skipped.run_id:
            self.quarantine(Changed(skipped.run_id, f"a fact in the log of all runs: {skipped.why}"))
        else:
            log.warning("a fact in the log of all runs is skipped", extra={"why": skipped.why})

    def _workable(self, run_ids: Iterable[str], limit: int | None = None) -> Sequence[str]:
        return self._quarantine.without(run_id for run_id in run_ids if run_id not in self._newer)[:limit]
