"""Appends this member's entries to a shared log, settles which won their place, and tells what was done, in batches."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent_service.errors import VersionMoved
from agent_service.store.shared_log.facts import VERSION, EntryFact, Span, ToldFact
from agent_service.store.shared_log.ownership import Copy, Log
from agent_service.store.sqlite import TOLD_WITHIN_S
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain
from schemas import subjects


class OwnEntries:
    """By run. Entries of other members are ignored."""

    def __init__(self) -> None:
        self._coming: dict[str, set[int]] = {}
        self._open: dict[str, set[int]] = {}
        self._done: dict[str, set[int]] = {}
        self._told: dict[str, set[int]] = {}

    @contextmanager
    def coming(self, run_id: str, seq: int) -> Iterator[None]:
        """Inside, the entry is being stored; then it is pending, unless an error says that it may not be there."""
        self._coming.setdefault(run_id, set()).add(seq)
        try:
            yield
            self.add(run_id, (seq,))
        finally:
            _move(run_id, {seq}, self._coming)

    def add(self, run_id: str, seqs: Iterable[int]) -> None:
        self._open.setdefault(run_id, set()).update(seqs)

    def done(self, run_id: str, since: int, upto: int) -> bool:
        """Marks own entries from `since` to `upto` as done; returns whether there were any."""
        done = {seq for seq in self._open.get(run_id, ()) if since <= seq <= upto}
        _move(run_id, done, self._open, self._done)
        return bool(done)

    def to_tell(self, run_id: str) -> tuple[Span, ...]:
        """What is done of a run, said now, and known to all once it was `heard`."""
        done = set(self._done.get(run_id, ()))
        _move(run_id, done, self._done, self._told)
        return spans(done)

    def all_to_tell(self, runs: int) -> dict[str, tuple[Span, ...]]:
        return {run_id: self.to_tell(run_id) for run_id in list(self._done)[:runs]}

    def not_told(self, run_id: str, told: Iterable[Span]) -> None:
        _move(run_id, _entries(told), self._told, self._done)

    def heard(self, run_id: str, told: Iterable[Span]) -> None:
        _move(run_id, _entries(told), self._told)

    def say_again(self, run_id: str) -> bool:
        """Tell all of the run again, because it may not have been stored; returns whether there is any."""
        said = set(self._told.get(run_id, ()))
        _move(run_id, said, self._told, self._done)
        return bool(said)

    def left(self, run_id: str, seqs: Iterable[int]) -> tuple[int, ...]:
        """Entries that this member neither did nor is about to do."""
        known = set[int]().union(*(entries.get(run_id, ()) for entries in (self._coming, self._done, self._told)))
        return tuple(seq for seq in seqs if seq not in known)


def spans(seqs: Iterable[int]) -> tuple[Span, ...]:
    found: list[Span] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)


def _entries(told: Iterable[Span]) -> set[int]:
    return {seq for since, upto in told for seq in range(since, upto + 1)}


def _move(run_id: str, seqs: set[int], of: dict[str, set[int]], to: dict[str, set[int]] | None = None) -> None:
    there = of.get(run_id, set()) & seqs
    if there and to is not None:
        to.setdefault(run_id, set()).update(there)
    if there and not (left := of[run_id] - there):
        del of[run_id]
    elif there:
        of[run_id] = left


@dataclass(slots=True, eq=False)
class Attempt:
    waiting: asyncio.Timeout
    arrived: bool = False
    over: bool = False


class Appending:
    def __init__(self, log: Log, copy: Copy) -> None:
        self._log = log
        self._copy = copy
        self._awaited: dict[tuple[str, int, str], list[Attempt]] = {}

    async def append(self, fact: EntryFact, after: int) -> None:
        """Returns once the fact is stored, and in the copy unless that fell behind. Raises VersionMoved, TryAgain."""
        attempt = Attempt(asyncio.timeout(None))
        self._awaited.setdefault(_name(fact), []).append(attempt)
        try:
            async with attempt.waiting:
                await self._say(fact, after)
        except (TimeoutError, TryAgain, VersionMoved):
            if not attempt.arrived:  # otherwise it is stored, whatever was answered
                self._give_up(fact, attempt)
                raise
        except BaseException:
            self._give_up(fact, attempt)
            raise
        finally:
            attempt.over = True

    def expected(self, entry: EntryFact) -> bool:
        attempts = self._awaited.pop(_name(entry), [])
        for attempt in attempts:
            attempt.arrived = True
            if not attempt.over:
                attempt.waiting.reschedule(0)
        return bool(attempts)

    def _give_up(self, fact: EntryFact, attempt: Attempt) -> None:
        attempts = self._awaited.get(_name(fact), [])
        if attempt in attempts:
            attempts.remove(attempt)
        if not attempts:
            self._awaited.pop(_name(fact), None)

    async def _say(self, fact: EntryFact, after: int) -> None:
        try:
            position = await self._log.append(fact.subject, fact.encoded(), after=after)
        except Moved as error:
            if newest := await self._log.newest(fact.subject):
                await self._copy.wait(newest.seq)  # ours may be below it
            raise VersionMoved(f"run {fact.run_id}: another agent was faster with entry {fact.seq}") from error
        else:
            with contextlib.suppress(TryAgain):
                await self._copy.wait(position)


def _name(entry: EntryFact) -> tuple[str, int, str]:
    return entry.run_id, entry.seq, entry.hash


RUNS_AT_ONCE = 1000


class Telling:
    def __init__(self, own: OwnEntries, facts: Log, me: str, permitted: Callable[[], Awaitable[None]]) -> None:
        self._own = own
        self._log = facts
        self._me = me
        self._permitted = permitted
        self.is_due = asyncio.Event()

    async def keep(self) -> None:
        while True:
            await self.is_due.wait()
            await asyncio.sleep(TOLD_WITHIN_S)
            self.is_due.clear()
            try:
                await self.tell()
            except TryAgain:
                self.is_due.set()

    async def tell(self) -> None:
        while told := self._own.all_to_tell(RUNS_AT_ONCE):
            fact = ToldFact(v=VERSION, by=self._me, runs=told)
            try:
                await self._permitted()
                await self._log.append(subjects.STORED_TOLD, fact.encoded(), after=None)
            except BaseException:
                for run_id, some in told.items():
                    self._own.not_told(run_id, some)
                raise
