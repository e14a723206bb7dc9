"""Runs of another store, brought into this one to be read.

What is stored of such a run follows from its journal alone, and is sealed by the keys of this store. All of it counts
as told, so that nothing is said on the bus; nothing is counted as spent, for it was spent elsewhere. It stays as it is:
its like in the store that it came from may go on, and two of them would do the same twice.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial

from agent_service.core.state import RunState
from agent_service.errors import ReadOnly
from agent_service.journal import Commit, Entry, growth_of
from agent_service.store.rows import Rows, rows_of
from agent_service.store.seals import Apart, Seals
from agent_service.store.sql.queries import load_queries
from agent_service.store.writing import Mark, Writing
from groundwork.sqlite.file import SqliteFile, microseconds

BY = "agentic import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A run that has ended, with its whole journal; `digest` is of what its wake asked for."""

    state: RunState
    digest: str
    entries: Sequence[Entry]


class SqliteImports:
    """Of an open database. A full or locked disk raises TryAgain, a broken one Broken."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()
        self._writing = Writing(self._sql)

    @cached_property
    def _known(self) -> set[str]:
        """Read once: while an agent works nobody imports, unless others share its store."""
        return {run_id for (run_id,) in self._database.look_up(self._sql["imported"])}

    def heard(self, run_id: str) -> None:
        """The run is in the database now, and was imported."""
        self._known.add(run_id)

    def check(self, run_id: str) -> None:
        """Raises ReadOnly for a run that was imported."""
        if run_id in self._known:
            raise ReadOnly(run_id)

    async def digest(self, run_id: str) -> str:
        """Of what the wake of a run asked for; empty where there is no such run."""
        return "".join(digest for (digest,) in await self._database.read(self._sql["wake_digest"], (run_id,)))

    async def left(self, runs: Sequence[Foreign]) -> list[Foreign]:
        """Those of the runs that no import has brought yet, as they are."""
        there = [await self._database.read(self._sql["imported_head"], (run.state.run_id,)) for run in runs]
        heads = [bytes.fromhex(run.entries[-1].hash) for run in runs]
        return [run for run, found, head in zip(runs, there, heads, strict=True) if found != [(head, True)]]

    async def taken(self, runs: Sequence[Foreign], *, begun: bool = False) -> dict[str, str]:
        """Those of the runs that are here, or whose wake id names another, and why they cannot be taken in.
        `begun`: what an import has brought in part does not stand in its way."""
        found = {}
        for run in runs:
            run_id, wake_id = run.state.run_id, run.state.wake_id
            if begun and await self._database.read(self._sql["imported_head"], (run_id,)):
                continue
            if await self._database.read(self._sql["version"], (run_id,)):
                found[run_id] = "is in this store already"
            elif await self._database.read(self._sql["tombstone"], (run_id,)):
                found[run_id] = "was in this store, and is kept no longer"
            elif others := await self._database.read(self._sql["wake"], (wake_id,)):
                found[run_id] = f"has a wake id that names {others[0][0]} here"
        return found

    async def take(self, runs: Sequence[Foreign], seals: Seals, at: datetime) -> None:
        """All of them, or none. They must not be taken."""
        await self._database.write(partial(self._take, runs, seals, microseconds(at)))

    def _take(self, runs: Sequence[Foreign], seals: Seals, at: int, connection: sqlite3.Connection) -> None:
        for run in runs:
            state = run.state
            asked = state.wake_id, run.digest, microseconds(state.accepted_at)
            first, *others = rows = _rows(run)
            mark = Mark(seal=seals.seal(rows[-1].sealed(), rows[-1].apart(first.apart(Apart()))))
            self._writing.add(first, mark, asked, connection)
            for one in others:
                self._writing.advance(one, mark, connection)
            connection.execute(self._sql["import"], (state.run_id, at))
            connection.execute(self._sql["dismiss"], (state.run_id, state.version, BY, at))


def _rows(run: Foreign) -> list[Rows]:
    """Of each entry. The newest brings what lies beside the row, and what the others say of the row it replaces."""
    state, newest = run.state, run.entries[-1]
    commits = (
        Commit(
            entry=entry,
            state=state,
            brief=state.brief if entry.seq == 1 else None,
            growth=growth_of(None, state) if entry is newest else (),
        )
        for entry in run.entries
    )
    return [replace(rows_of(commit, state.version), spent=None) for commit in commits]
