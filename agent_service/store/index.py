"""Words beside runs as rows, and the index of runs that several agents share: a row for each, from the headers of the
log in order.

A header that cannot be read changes nothing: loading the run tells why.
"""

import json
import sqlite3

from pydantic_core import to_json

from agent_service.run.arrival import own_turn
from agent_service.store.database import load_queries
from agent_service.store.rows import halt_row, tombstone_row
from agent_service.store.words import ROW, BareSaid, GoneSaid, HaltSaid, Paid, RunRow, SeenSaid, Word, row_in, word_in
from groundwork.nats.publishing import StoredMessage
from groundwork.sqlite.file import microseconds
from schemas import subjects

OF_A_RUN = ("items", "briefs", "dismissals", "artifacts_gone", "journal", "runs")
"""The tables that hold something of a run, each before those that it refers to."""
BESIDE_RUNS = ("spending", "halts", "gone")


class Indexing:
    def __init__(self) -> None:
        self._sql = load_queries()

    def apply(self, connection: sqlite3.Connection, fact: StoredMessage) -> None:
        """May run more than once, for a transaction that is begun again."""
        if fact.subject.startswith(subjects.STORED_RUNS.removesuffix(">")):
            self._apply_run(connection, fact.subject.rpartition(".")[2], row_in(fact))
        elif word := word_in(fact.subject, fact.headers.get(ROW, "")):
            self.say(connection, word)

    def say(self, connection: sqlite3.Connection, word: Word) -> None:
        """Words about a run that is not there change nothing."""
        match word:
            case HaltSaid(halt=halt):
                connection.execute(self._sql["keep_halt"], halt_row(halt))
            case SeenSaid(dismissal=seen) if self._version_of(connection, seen.run_id):
                dismissed = seen.run_id, seen.version, seen.by, microseconds(seen.at)
                connection.execute(self._sql["dismiss"], dismissed)
            case BareSaid(gone=gone, artifacts=left) if self._version_of(connection, gone.run_id):
                values = gone.run_id, microseconds(gone.gone_at), gone.rule, json.dumps(left)
                connection.execute(self._sql["artifacts_go"], values)
            case GoneSaid(stone=stone) if self._version_of(connection, stone.run_id) <= word.version:
                for table in OF_A_RUN:
                    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (stone.run_id,))  # noqa: S608 - ours
                connection.execute(self._sql["bury"], (*tombstone_row(stone), json.dumps(word.artifacts)))

    def forget(self, connection: sqlite3.Connection) -> None:
        """Empties the index: it is made again, or of another log."""
        for table in (*OF_A_RUN, *BESIDE_RUNS):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
        connection.execute("UPDATE tallies SET runs = 0")

    def _apply_run(self, connection: sqlite3.Connection, run_id: str, row: RunRow | None) -> None:
        if row is None:
            connection.execute(self._sql["leave_alone"], (run_id,))
            return
        version, _, known = connection.execute(self._sql["indexed"], (run_id,)).fetchone() or (0, "", "{}")
        is_gone = not version and connection.execute(self._sql["tombstone"], (run_id,)).fetchall()
        if version >= row.seq or is_gone:
            return
        parent = row.line.get("parent_run_id")
        paid, own = row.paid, row.by == own_turn(run_id, row.seq)
        more = {"whole_at": row.whole_at, "own": own, "paid": paid and paid.model_dump(exclude_defaults=True)}
        line = to_json(row.line | {name: value for name, value in more.items() if value}).decode()
        run = row.status, row.seq, bytes.fromhex(row.head), row.summary, row.at, row.due_at, row.told, line
        asked = row.wake_id, row.digest, row.accepted_at, row.goal, row.caller, str(parent) if parent else None
        connection.execute(self._sql["add_run"], (*run, "", row.bytes, run_id, *asked))
        before = json.loads(known).get("paid")
        if paid and more["paid"] != before:
            told = Paid(**before) if before and before["day"] == paid.day else Paid(day=paid.day)
            spent = paid.day, row.caller, paid.usd - told.usd, paid.size - told.size
            connection.execute(self._sql["spend"], spent)

    def _version_of(self, connection: sqlite3.Connection, run_id: str) -> int:
        return sum(version for (version,) in connection.execute(self._sql["version"], (run_id,)))
