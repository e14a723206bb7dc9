"""Moves one agent's runs into a shared log as the facts that its agent would have written, and compares both.

The newest entry of a run brings its row and all that is beside it; earlier facts have their entry alone. What is in the
log already is left out, so that an interrupted move is finished by the next.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from agent_service.core.waiting import Status
from agent_service.store.retention import SqliteGraves
from agent_service.store.shared_log.facts import (
    VERSION,
    Buried,
    EntryFact,
    GoneFact,
    HaltFact,
    SeenFact,
    Span,
    ToldFact,
)
from agent_service.store.shared_log.ownership import Log
from agent_service.store.side_tables import halt_of
from agent_service.store.sql.database import load_queries
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

COMPARED = "compared_"


async def differences(one: SqliteFile, other: SqliteFile) -> list[str]:
    return await asyncio.to_thread(_differences, one.path, other.path)


def _differences(one: Path, other: Path) -> list[str]:
    statements = {name: sql for name, sql in load_queries("moving.sql").items() if name.startswith(COMPARED)}
    with _reading(one) as ours, _reading(other) as theirs:
        found = (_first(ours, theirs, name.removeprefix(COMPARED), sql) for name, sql in statements.items())
        return [text for text in found if text]


def _first(ours: sqlite3.Connection, theirs: sqlite3.Connection, table: str, statement: str) -> str:
    for row, its_copy in zip_longest(ours.execute(statement), theirs.execute(statement)):
        if row != its_copy:
            about = row or its_copy
            what = "is missing" if its_copy is None else "was never there" if row is None else "is another"
            return f"{table}: {' '.join(map(_word, about[:2]))} {what}"
    return ""


def _word(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        yield connection


AT_ONCE = 500
REPLACED: Mapping[str, Any] = {"status": Status.RUNNING, "summary": "", "state": "{}"}
"""The row of an entry that is not the newest of its run."""

Row = tuple[Any, ...]


class History:
    """The facts of `source` that `copy`, a copy of the log as it was at the beginning, does not have."""

    def __init__(self, source: SqliteFile, copy: SqliteFile) -> None:
        self._source = source
        self._copy = copy
        self._sql = load_queries("moving.sql")

    async def entries(self) -> AsyncIterator[EntryFact]:
        spent, opened = iter(await self._spent()), iter(await self._opened())
        position = 0
        while rows := await self._source.read(self._sql["stretch"], (position, AT_ONCE)):
            for row in rows:
                position = row[0]
                if self._is_new(row):
                    yield self._fact(row).model_copy(update={"spent": next(spent, None), "opened": next(opened, None)})

    async def dismissals(self) -> list[SeenFact]:
        news = await self._news("all_dismissals")
        return [
            SeenFact(v=VERSION, by="", run_id=run_id, version=version, person=by, at=at)
            for run_id, version, by, at in news
        ]

    async def halts(self) -> list[HaltFact]:
        return [HaltFact(v=VERSION, by="", halt=halt_of(row)) for row in await self._news("all_halts")]

    async def gone(self) -> AsyncIterator[GoneFact]:
        there = {run_id for (run_id,) in await self._copy.read(self._sql["all_gone"])}
        found = [one async for one in SqliteGraves(self._source).every() if one.run_id not in there]
        for at in range(0, len(found), AT_ONCE):
            buried = tuple(Buried.of(replace(one, last=0), "[]") for one in found[at : at + AT_ONCE])
            runs = {one.run_id: (0, one.wake_id) for one in buried}
            yield GoneFact(v=VERSION, by="", runs=runs, tombstones=buried)

    async def told(self) -> ToldFact | None:
        runs: dict[str, tuple[Span, ...]] = {
            run_id: ((1, told),) for run_id, told in await self._news("all_told") if told
        }
        return ToldFact(v=VERSION, by="", runs=runs) if runs else None

    def newest_place(self, run_id: str) -> tuple[int, int]:
        for seq, position in self._copy.look_up(self._sql["newest_place"], (run_id,)):
            return seq, position
        return 0, 0

    def _is_new(self, row: Row) -> bool:
        _, run_id, seq, *_, own_hash, _, _ = row
        for (there,) in self._copy.look_up(self._sql["hash_of"], (run_id, seq)):
            if there != own_hash:
                raise Misconfigured(
                    f"the log has another entry {seq} of run {run_id}: it is not the one of this store. Move into a "
                    "stream made anew"
                )
            return False
        return True

    def _fact(self, row: Row) -> EntryFact:
        _, run_id, seq, at, kind, event, facts, previous, own_hash, version, told = row
        entry = {"run_id": run_id, "seq": seq, "at": at, "kind": kind, "event": event}
        entry |= {"facts": facts, "previous": previous.hex(), "hash": own_hash.hex()}
        asked = self._asked(run_id) if seq == 1 else {}
        left = self._newest(run_id) if seq == version else REPLACED
        spans = ((1, min(seq, told)),) if told else ()
        return EntryFact(v=VERSION, by="", told=spans, **{**entry, **asked, **left})

    def _asked(self, run_id: str) -> dict[str, Any]:
        ((wake_id, digest, accepted_at, goal, brief),) = self._source.look_up(self._sql["asked"], (run_id,))
        asking = {"wake_id": wake_id, "digest": digest, "accepted_at": accepted_at}
        return {"asking": asking, "goal": goal, "brief": brief}

    def _newest(self, run_id: str) -> dict[str, Any]:
        ((status, summary, due_at, state, goal, brief),) = self._source.look_up(self._sql["newest_row"], (run_id,))
        items = self._source.look_up(self._sql["items"], (run_id,))
        there = self._copy.look_up(self._sql["items_there"], (run_id,))
        row = {"status": Status(status), "summary": summary, "due_at": due_at, "state": state}
        return {**row, "goal": goal, "brief": brief, "added": tuple(items), "dropped": tuple(there)}

    async def _spent(self) -> list[tuple[str, str, float, int]]:
        """What days cost beyond what the copy has of them: one for an entry, of which there are as many at least."""
        copied = await self._copy.read(self._sql["all_spending"])
        there = {(day, caller): (usd, size) for day, caller, usd, size in copied}
        found = []
        for day, caller, usd, size in await self._source.read(self._sql["all_spending"]):
            before_usd, before_size = there.get((day, caller), (0.0, 0))
            if (usd, size) != (before_usd, before_size):
                found.append((day, caller, usd - before_usd, size - before_size))
        return found

    async def _opened(self) -> list[tuple[str, int]]:
        there = dict(await self._copy.read(self._sql["all_open"]))
        open_now = await self._source.read(self._sql["all_open"])
        return [(caller, runs - there.get(caller, 0)) for caller, runs in open_now if runs != there.get(caller, 0)]

    async def _news(self, statement: str) -> list[Row]:
        there = set(await self._copy.read(self._sql[statement]))
        return [row for row in await self._source.read(self._sql[statement]) if row not in there]


TOGETHER = 64
"""Facts that are on their way at the same time: of different runs, for those of one run follow each other."""


class Copy(Protocol):
    async def caught_up(self) -> None: ...


class IntoLog:
    """One move. `copy` writes the facts of `log` into `copied`."""

    def __init__(self, log: Log, copy: Copy, copied: SqliteFile) -> None:
        self._log = log
        self._copy = copy
        self._copied = copied
        self._places: dict[str, int] = {}

    async def move(self, source: SqliteFile) -> int:
        """How many entries were written. Raises Misconfigured where the log has anything else, and TryAgain."""
        await self._copy.caught_up()
        history = History(source, self._copied)
        written = 0
        async for some in _bunches(history.entries()):
            await asyncio.gather(*(self._follow_each_other(chain, history) for chain in _by_run(some)))
            written += len(some)
        await self._write_the_rest(history)
        await self._copy.caught_up()
        if found := await differences(source, self._copied):
            raise Misconfigured(f"the runs are in the log, but not as they were: {'; '.join(found)}. Nothing was lost")
        return written

    async def _write_the_rest(self, history: History) -> None:
        await self._copy.caught_up()
        for seen in await history.dismissals():
            await self._append(subjects.stored_seen(seen.run_id), seen.encoded(), None)
        for halt in await history.halts():
            await self._append(subjects.STORED_HALT, halt.encoded(), None)
        async for gone in history.gone():
            await self._append(subjects.STORED_GONE, gone.encoded(), None)
        if told := await history.told():
            await self._append(subjects.STORED_TOLD, told.encoded(), None)

    async def _follow_each_other(self, chain: Sequence[EntryFact], history: History) -> None:
        for fact in chain:
            if fact.run_id not in self._places:
                seq, position = history.newest_place(fact.run_id)
                self._places[fact.run_id] = position if seq > 1 else 0
            place = await self._append(fact.subject, fact.encoded(), self._places[fact.run_id])
            self._places[fact.run_id] = place if fact.seq > 1 else 0

    async def _append(self, subject: str, body: bytes, after: int | None) -> int:
        try:
            return await self._log.append(subject, body, after=after)
        except Moved as error:
            raise Misconfigured(
                f"somebody else writes to {subject}: stop all agents that share this store, then run this again"
            ) from error


async def _bunches(facts: AsyncIterable[EntryFact]) -> AsyncIterator[list[EntryFact]]:
    some: list[EntryFact] = []
    async for fact in facts:
        some.append(fact)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some


def _by_run(facts: Sequence[EntryFact]) -> list[list[EntryFact]]:
    chains: dict[str, list[EntryFact]] = {}
    for fact in facts:
        chains.setdefault(fact.run_id, []).append(fact)
    return list(chains.values())
