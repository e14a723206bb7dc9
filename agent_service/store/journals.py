"""Runs as read from their messages in the log, and a cache of them."""

import asyncio
import json
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import field

from agent_service.core.events import ModelReplied, ModelUnavailable
from agent_service.errors import Damaged, NewerVersion, Tampered
from agent_service.run.journal import GENESIS, Run, decode_state
from agent_service.store.database import STATE, Quarantine, load_queries
from agent_service.store.messages import EntryMessage, RunRow, entry_in, row_in
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.values import dataclass

REMEMBERED_JOURNALS = 512
ANSWERS = frozenset(kind.__name__ for kind in (ModelReplied, ModelUnavailable))
LOOKS, LOOK_AGAIN_S = 40, 0.05
"""How often a server that is behind is asked for an entry that is known to be there."""


class Journal:
    """A run's newest state, and the message behind each entry.

    `begins`: the first entry that was read. `expected`: the newest entry that is known of. `whole_at`: position of the
    newest snapshot; 0: the first message. `by` and `positions` are by entry.
    """

    def __init__(self, run_id: str, subject: str, *, expected: int = 0, whole_at: int = 0, digest: str = "") -> None:
        self.run_id, self.subject, self.expected, self.digest = run_id, subject, expected, digest
        self.whole_at = whole_at
        self.begins = self.version = self.position = self.whole_seq = 0
        self.head = GENESIS
        self.by: dict[int, str] = {}
        self.positions: dict[int, int] = {}
        self.row: RunRow | None = None
        self.reading = asyncio.Lock()
        self._reserved: list[tuple[int, int, str]] = []
        self._answered = 0
        """The newest entry that has the outcome of a model call."""
        self._state = self._brief = ""
        self._items: defaultdict[str, list[str]] = defaultdict(list)
        self._run: Run | None = None

    def add(self, message: EntryMessage, row: RunRow | None, position: int, run: Run | None = None) -> None:
        """`run`: after the entry, if it is known. Raises Tampered for an entry that does not continue the run."""
        entry = message.entry
        if position <= self.position:
            return
        if row is None:
            raise Tampered(self.run_id, f"the header of what lies at {position} of the log of all runs")
        if (entry.seq, entry.previous) != (self.version + 1, self.head) and (self.version or not message.whole):
            raise Tampered(self.run_id, f"entry {entry.seq} does not continue entry {self.version}")
        if message.whole or entry.seq == 1:
            self.whole_seq, self.whole_at = entry.seq, position if message.whole else 0
            self._items.clear()
        self.begins = self.begins or entry.seq
        self.version, self.head, self.position, self.row, self.digest = entry.seq, entry.hash, position, row, row.digest
        self.expected = max(self.expected, self.version)
        self.by[entry.seq], self.positions[entry.seq] = message.by, position
        if row.reserves:
            self._reserved.append((entry.seq, row.reserves, message.by))
        if entry.kind in ANSWERS:
            self._answered = entry.seq
        self._state, self._brief, self._run = message.state, message.brief or self._brief, run
        for growth in message.grown:
            self._items[growth.field][: growth.dropped] = []
            self._items[growth.field] += growth.added

    def run(self) -> Run:
        """Raises Damaged."""
        if self._run is None:
            items = [(field, item) for field, items in self._items.items() for item in items]
            try:
                self._run = Run(state=decode_state(self._state, self._brief, items), head=self.head)
            except ValueError as error:
                raise Damaged(self.run_id, STATE) from error
        return self._run

    def under_way(self, call: int) -> str | None:
        """The message that reserved funds for a model call without an outcome yet. The entry of an answer may reserve
        the next call."""
        return next(reversed(self.reserved(call, self._answered - 1)), None)

    def reserved(self, call: int, since: int) -> list[str]:
        """Messages that reserved funds for a model call after entry `since`."""
        return [by for seq, of, by in self._reserved if seq > since and of == call]


@dataclass(slots=True)
class JournalCache:
    database: SqliteFile
    log: SharedLog
    quarantine: Quarantine
    caught_up: Callable[[], Awaitable[None]]
    known: OrderedDict[str, Journal] = field(default_factory=OrderedDict)

    async def of(self, run_id: str, *, newest: bool = False) -> Journal | None:
        """The journal as the index knows it; `newest`: as the log has it. Raises NewerVersion, Damaged, TryAgain."""
        self.quarantine.check(run_id)
        journal = self.known.get(run_id) or await self._indexed(run_id)
        if journal is None:
            return None
        self.remember(journal)  # before the read, so that it hears of what comes during it
        if newest or journal.version < max(journal.expected, 1):
            await self._read_on(journal)
        return journal

    async def expect_newest(self, journal: Journal) -> int:
        """Returns the newest entry of the log. Raises NewerVersion, and Tampered, also if the log has lost the run."""
        seq = journal.version
        newest = await self.log.newest(journal.subject)
        if newest is None:
            await self.caught_up()
            if self.database.look_up(load_queries()["indexed"], (journal.run_id,)):  # else it was deleted
                lost = Tampered(journal.run_id, "the log of all runs has no entry of it any more")
                self.quarantine.add(lost)
                raise lost
        elif newest.seq != journal.position:
            row = row_in(newest)
            seq = row.seq if row else entry_in(newest, journal.run_id).entry.seq
            journal.expected = max(journal.expected, seq)
        return seq

    async def _indexed(self, run_id: str) -> Journal | None:
        """The journal of a run in the index, not read yet."""
        sql = load_queries()["indexed"]
        if not (found := self.database.look_up(sql, (run_id,))):
            await self.caught_up()
            found = self.database.look_up(sql, (run_id,))
        for version, wake_id, line in found:
            whole_at = json.loads(line).get("whole_at", 0)
            return Journal(run_id, subjects.stored_run(wake_id, run_id), expected=version, whole_at=whole_at)
        newest = await self.log.newest(subjects.stored_under_any_wake(run_id))
        if newest and row_in(newest) is None:  # raises NewerVersion if one wrote it
            entry_in(newest, run_id)
        return None

    async def _read_on(self, journal: Journal) -> None:
        """Raises NewerVersion, Tampered, and TryAgain if no server has an entry that is known to be there."""
        async with journal.reading:
            for _ in range(LOOKS):
                begins = journal.position or max(0, journal.whole_at - 1)
                try:
                    for fact in await self.log.read(journal.subject, begins):
                        journal.add(entry_in(fact, journal.run_id), row_in(fact), fact.seq)
                except NewerVersion:  # the part that can be read is not its state
                    self.known.pop(journal.run_id, None)
                    raise
                except Tampered as error:
                    self.quarantine.add(error)
                    raise
                if journal.version >= max(journal.expected, 1):
                    return
                await asyncio.sleep(LOOK_AGAIN_S)
        expected = journal.expected
        newest = await self.expect_newest(journal)
        if journal.expected == expected:  # else there is news
            journal.expected = newest
        raise TryAgain(f"run {journal.run_id}: no server has entry {expected}")

    async def whole(self, run_id: str) -> Journal:
        """Read from the run's first entry on, not only from its newest snapshot."""
        journal = await self.of(run_id, newest=True)
        if journal is None or journal.begins == 1:
            return journal or Journal(run_id, "")
        whole = Journal(run_id, journal.subject, expected=journal.version)
        await self._read_on(whole)
        return whole

    def remember(self, journal: Journal) -> None:
        self.known[journal.run_id] = journal
        self.known.move_to_end(journal.run_id)
        if len(self.known) > REMEMBERED_JOURNALS:
            self.known.popitem(last=False)
