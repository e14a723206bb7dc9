"""The index of runs that several agents share: a row for each in SQLite, applied from the headers of the log in order.

A header that cannot be read changes nothing: loading the run tells why.
"""

import json
import sqlite3

from agent_service.core.waiting import FINAL
from agent_service.run.in_hand import own_turn
from agent_service.store.retention import OF_A_RUN
from agent_service.store.shared_log.facts import BareSaid, GoneSaid, HaltSaid, RunRow, SeenSaid, said_in
from agent_service.store.side_tables import halt_row
from agent_service.store.sql.database import load_queries
from groundwork.nats.publishing import StoredMessage
from schemas import subjects

BESIDE_RUNS = ("spending", "callers", "halts", "gone")


class Indexing:
    def __init__(self) -> None:
        self._sql = load_queries()
        self._read: dict[int, RunRow | HaltSaid | GoneSaid] = {}

    def apply(self, connection: sqlite3.Connection, fact: StoredMessage) -> None:
        """May run more than once, for a transaction that is begun again."""
        kind, _, about = fact.subject.removeprefix(f"{subjects.STORE}.").partition(".")
        if kind == "run":
            self._apply_run(connection, about.rpartition(".")[2], fact)
        elif kind == "halt" and (said := said_in(HaltSaid, fact)):
            connection.execute(self._sql["keep_halt"], halt_row(said.halt))
            self._read[fact.seq] = said
        elif kind == "seen" and (seen := said_in(SeenSaid, fact)) and self._version_of(connection, seen.run_id):
            connection.execute(self._sql["dismiss"], (seen.run_id, seen.version, seen.person, seen.at))
        elif kind == "gone" and (gone := said_in(GoneSaid, fact)):
            self._bury(connection, gone)
            self._read[fact.seq] = gone
        elif kind == "bare" and (bare := said_in(BareSaid, fact)) and self._version_of(connection, bare.run_id):
            values = bare.run_id, bare.at, bare.rule, json.dumps(bare.artifacts)
            connection.execute(self._sql["artifacts_go"], values)

    def forget(self, connection: sqlite3.Connection) -> None:
        """Empties the index: it is made again, or of another log."""
        for table in (*OF_A_RUN, *BESIDE_RUNS):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
        connection.execute("UPDATE tallies SET runs = 0")

    def read(self, fact: StoredMessage) -> RunRow | HaltSaid | GoneSaid | None:
        """What was applied of the fact, once."""
        return self._read.pop(fact.seq, None)

    def _apply_run(self, connection: sqlite3.Connection, run_id: str, fact: StoredMessage) -> None:
        row = said_in(RunRow, fact)
        if row is None:
            connection.execute(self._sql["leave_alone"], (run_id,))
            return
        self._read[fact.seq] = row
        version, status, _, known = self._indexed(connection, run_id) or (0, "", "", "{}")
        is_gone = not version and connection.execute(self._sql["tombstone"], (run_id,)).fetchall()
        if version >= row.seq or is_gone:
            return
        paid = json.loads(known).get("paid")
        line = {
            **row.line,
            "own": row.by == own_turn(run_id, row.seq),
            "bytes": row.bytes,
            "whole_at": row.whole_at,
            "paid": row.paid.model_dump() if row.paid else None,
        }
        reserve = {"cost_usd": row.reserved_usd} if row.reserved_usd is not None else None
        waiting = {"reserve": reserve, "still_since": row.still or None}
        state, head = json.dumps({"waiting": waiting}), bytes.fromhex(row.head)
        values = row.status, row.seq, head, row.summary, row.at, row.due_at, state, run_id, row.told, json.dumps(line)
        connection.execute(self._sql["index_run"], (*values, row.wake_id, row.digest, row.accepted_at))
        if not version:  # else the same is there
            brief = json.dumps({"caller": row.caller, "parent": {"run_id": row.parent}})
            connection.execute(self._sql["put_brief"], (run_id, row.goal, brief, None, None))
        if row.has_artifacts and not connection.execute(self._sql["has_items"], (run_id,)).fetchall():
            connection.execute(self._sql["add_item"], (run_id, "artifacts", "null"))
        if row.paid and row.paid.model_dump() != paid:
            told = paid if paid and paid["day"] == row.paid.day else {"usd": 0.0, "size": 0}
            spent = row.paid.day, row.caller, row.paid.usd - told["usd"], row.paid.size - told["size"]
            connection.execute(self._sql["spend"], spent)
        is_open, was_open = row.status not in FINAL, bool(status) and status not in FINAL
        if row.counts and is_open is not was_open:
            connection.execute(self._sql["open"], (row.caller, is_open - was_open))

    def _bury(self, connection: sqlite3.Connection, gone: GoneSaid) -> None:
        """A run that moved on stays."""
        run_id, _, _, status, *_ = gone.stone
        if self._version_of(connection, run_id) > gone.version:
            return
        for table in OF_A_RUN:
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of ours
        stone = (*gone.stone[:3], status.value, *gone.stone[4:])
        connection.execute(self._sql["bury"], (*stone, json.dumps(gone.artifacts)))

    def _version_of(self, connection: sqlite3.Connection, run_id: str) -> int:
        indexed = self._indexed(connection, run_id)
        return indexed[0] if indexed else 0

    def _indexed(self, connection: sqlite3.Connection, run_id: str) -> tuple[int, str, str, str] | None:
        found: tuple[int, str, str, str] | None = connection.execute(self._sql["indexed"], (run_id,)).fetchone()
        return found
