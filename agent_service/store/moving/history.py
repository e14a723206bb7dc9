"""The store of one agent, told as the facts that an agent of a shared store would have written.

What an earlier entry left of its run nobody needs any more, and it is not known: such a fact has its entry, and a row
that the next one replaces. The newest entry of a run brings the row as it is, and all that is beside it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from agent_service.core.waiting import Status
from agent_service.store.facts import VERSION, Buried, EntryFact, GoneFact, HaltFact, SeenFact, Span, ToldFact
from agent_service.store.graves import SqliteGraves
from agent_service.store.halts import halt_of
from agent_service.store.sql.queries import load_queries
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile

AT_ONCE = 500
REPLACED: Mapping[str, Any] = {"status": Status.RUNNING, "summary": "", "state": "{}"}
"""The row of an entry that is not the newest of its run."""

Row = tuple[Any, ...]


class History:
    """Of `source`, as far as `copy` does not have it: that is a copy of the log as it was when this began."""

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
        _, run_id, seq, at, kind, event, effects_digest, previous, own_hash, version, told = row
        entry = {"run_id": run_id, "seq": seq, "at": at, "kind": kind, "event": event}
        entry |= {"effects_digest": effects_digest.hex(), "previous": previous.hex(), "hash": own_hash.hex()}
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
