"""How far the agent's database has come, and which of its rows are sealed. Fills the port Standings."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from agent_service.anchors import Standing
from agent_service.errors import Changed
from agent_service.store.graves import SqliteGraves, tombstone_of
from agent_service.store.rows import Loaded
from agent_service.store.seals import Seals
from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile

SEALED_AT_ONCE = 200
NO_TOMBSTONE = "it is gone, and what is left of it is not what the agent wrote: the seal does not fit"


class SqliteStanding:
    """Of an open database. A full or locked disk raises TryAgain, a broken one Broken."""

    def __init__(self, database: SqliteFile, seals: Seals) -> None:
        self._database = database
        self._seals = seals
        self._sql = load_queries()
        self._graves = SqliteGraves(database)

    def now(self) -> Standing:
        """As the store counts while it goes on."""
        ((runs,),) = self._database.look_up(self._sql["number_of_runs"])
        position, head = max(self._database.look_up(self._sql["newest_entry"]), default=(0, b""))
        return Standing(position=position, head=head.hex(), runs=runs)

    async def counted(self) -> Standing:
        """As its rows are."""
        ((runs, entries, position),) = await self._database.read(self._sql["count_runs"])
        return Standing(position=position, head=self.head_at(position), runs=runs, missing=position - entries)

    def head_at(self, position: int) -> str:
        """The hash of the entry at a position, in hex, also if it was the newest of a run that is gone; empty where
        there is none."""
        for (head,) in self._database.look_up(self._sql["head_at"], (position,)):
            return str(head.hex())
        return next((one.head for one in self._graves.spanning(position, self._seals) if one.last == position), "")

    def is_gone(self, position: int) -> bool:
        """Whether the entry at a position may have gone with its run, of which it was not the newest."""
        return any(one.last > position for one in self._graves.spanning(position, self._seals))

    async def unsealed(self) -> Sequence[str]:
        """Runs without a seal."""
        return [run_id for (run_id,) in await self._database.read(self._sql["unsealed"])]

    async def strange_key(self) -> str:
        """The id of the key by which the newest run is sealed, if the ring has it not; else empty."""
        for (seal,) in await self._database.read(self._sql["newest_seal"]):
            return self._seals.strange(seal or "")
        return ""

    async def unfitting(self) -> dict[str, str]:
        """Runs whose seals do not fit, and why."""
        found = {}
        for (run_id,) in await self._database.read(self._sql["every_run"]):
            loaded = Loaded.of(run_id, await self._database.read(self._sql["load"], (run_id,)))
            try:
                self._seals.check(loaded.seal, loaded.row, loaded.apart())
            except Changed as error:
                found[run_id] = error.what
        async for tombstone in self._graves.every():
            if not self._seals.fits(tombstone):
                found[tombstone.run_id] = NO_TOMBSTONE
        return found

    async def reseal(self) -> int:
        """Seal with the newest key what fits an older one, so that this can be given up; returns how many runs."""
        newest = (self._seals.newest,)
        rows = await self._database.read(self._sql["sealed_otherwise"], newest)
        rows += await self._database.read(self._sql["tombstones_sealed_otherwise"], newest)
        older = [run_id for (run_id,) in rows]
        for some in (older[i : i + SEALED_AT_ONCE] for i in range(0, len(older), SEALED_AT_ONCE)):
            await self._database.write(partial(self._reseal, some))
        return len(older)

    async def seal(self, run_ids: Sequence[str]) -> None:
        """Seal these runs as they are, and those that are gone."""
        for some in (run_ids[i : i + SEALED_AT_ONCE] for i in range(0, len(run_ids), SEALED_AT_ONCE)):
            await self._database.write(partial(self._seal, some))

    def _reseal(self, run_ids: Sequence[str], connection: sqlite3.Connection) -> None:
        """What does not fit keeps its seal, by which that is found."""
        for run_id in run_ids:
            if self._fits(run_id, connection):
                self._seal((run_id,), connection)

    def _fits(self, run_id: str, connection: sqlite3.Connection) -> bool:
        for row in connection.execute(self._sql["tombstone"], (run_id,)).fetchall():
            return self._seals.fits(tombstone_of(row))
        loaded = Loaded.of(run_id, connection.execute(self._sql["load"], (run_id,)).fetchall())
        with suppress(Changed):
            self._seals.check(loaded.seal, loaded.row, loaded.apart())
            return True
        return False

    def _seal(self, run_ids: Sequence[str], connection: sqlite3.Connection) -> None:
        for run_id in run_ids:
            if rows := connection.execute(self._sql["load"], (run_id,)).fetchall():
                loaded = Loaded.of(run_id, rows)
                connection.execute(self._sql["seal"], (run_id, self._seals.seal(loaded.row, loaded.apart())))
            for row in connection.execute(self._sql["tombstone"], (run_id,)).fetchall():
                connection.execute(self._sql["seal_tombstone"], (run_id, self._seals.bury(tombstone_of(row))))
