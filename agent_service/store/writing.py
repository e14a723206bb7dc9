"""Commits written as rows, whoever decides that they are: the store by itself, or the log of a store that is shared."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from agent_service.store.common_texts import CommonTexts
from agent_service.store.rows import Rows

Asked = tuple[str, str, int]
"""Of a new run: its wake id, the digest of what was asked for, and when it was accepted (µs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The member that wrote a commit (empty: this agent alone), and its place in the journal of all runs; None for the
    next one."""

    by: str = ""
    position: int | None = None


class Writing:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._common = CommonTexts(sql)

    def add(self, rows: Rows, mark: Mark, asked: Asked, connection: sqlite3.Connection) -> bool:
        """A new run; False where its id is taken, and nothing is written."""
        if connection.execute(self._sql["add_run"], (*rows.run, mark.by, *asked)).rowcount == 0:
            return False
        self._append(rows, mark, connection)
        return True

    def advance(self, rows: Rows, mark: Mark, connection: sqlite3.Connection) -> bool:
        """A run's next entry; False where the run is not at the entry before, and nothing is written."""
        if connection.execute(self._sql["advance_run"], (*rows.run, mark.by)).rowcount == 0:
            return False
        self._append(rows, mark, connection)
        return True

    def _append(self, rows: Rows, mark: Mark, connection: sqlite3.Connection) -> None:
        if rows.brief is not None:
            run_id, goal, brief = rows.brief
            connection.execute(self._sql["put_brief"], (run_id, goal, *self._common.cut(brief, connection)))
        self._append_entry(rows, mark, connection)
        if rows.dropped:
            connection.executemany(self._sql["drop_items"], rows.dropped)
        if rows.added:
            connection.executemany(self._sql["add_item"], rows.added)
        if rows.spent:
            connection.execute(self._sql["spend"], rows.spent)
        if rows.opened:
            connection.execute(self._sql["open"], rows.opened)

    def _append_entry(self, rows: Rows, mark: Mark, connection: sqlite3.Connection) -> None:
        run_id, seq, at, kind, event, *hashes = rows.entry
        rest, *common = self._common.cut(event, connection)
        entry = (run_id, seq, at, kind, rest, *hashes, mark.position, mark.by, *common)
        connection.execute(self._sql["append_entry"], entry)
