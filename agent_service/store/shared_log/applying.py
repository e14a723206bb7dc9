"""Applies facts of a shared store to this process's copy, in the order of the log.

A fact that cannot be taken in is skipped and noted: its run is left alone here, and the others go on.
"""

import sqlite3

from agent_service.store.retention import OF_A_RUN
from agent_service.store.rows import Writing
from agent_service.store.shared_log.facts import (
    KNOWN_LEVEL,
    AnyFact,
    EntryFact,
    GoneFact,
    HaltFact,
    Newer,
    Poisoned,
    SeenFact,
    decoded,
    run_named_by,
    shape_of,
)
from agent_service.store.side_tables import halt_row
from agent_service.store.sql.database import load_queries
from groundwork.nats.publishing import StoredMessage
from schemas.values import dataclass

BESIDE_RUNS = ("spending", "callers", "halts", "skipped", "gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A fact that was not taken in. `level` is that of its writer; 0 for what no agent wrote."""

    run_id: str
    level: int
    why: str


Outcome = AnyFact | Skipped | None


class Applying:
    def __init__(self) -> None:
        self._sql = load_queries()
        self._writing = Writing(self._sql)
        self._outcomes: dict[int, Outcome] = {}

    def apply(self, connection: sqlite3.Connection, fact: StoredMessage) -> None:
        """May run more than once, for a transaction that is begun again."""
        try:
            self._outcomes[fact.seq] = self._taken_in(connection, fact)
        except Newer as error:
            self._skip(connection, fact, Skipped(run_id=error.run_id, level=error.level, why=str(error)))
        except Poisoned as error:
            self._skip(connection, fact, Skipped(run_id="", level=0, why=str(error)))

    def forget(self, connection: sqlite3.Connection) -> None:
        """Empty the copy: it is made again, or of another log."""
        for table in (*OF_A_RUN, *BESIDE_RUNS):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
        connection.execute("UPDATE tallies SET runs = 0")

    def outgrow(self, connection: sqlite3.Connection) -> None:
        """Have the copy made again where it lacks what an older version could not take in, and this one can."""
        if connection.execute(self._sql["outgrown"], (KNOWN_LEVEL,)).fetchall():
            connection.execute("DELETE FROM replica")

    def outcome(self, fact: StoredMessage) -> Outcome:
        return self._outcomes.pop(fact.seq, None)

    def _taken_in(self, connection: sqlite3.Connection, fact: StoredMessage) -> Outcome:
        if (shape := shape_of(fact.subject)) is None:
            return None
        said = decoded(shape, fact.subject, fact.body)
        match said:
            case EntryFact():
                self._append(connection, said, fact.seq)
            case HaltFact(halt=halt):
                connection.execute(self._sql["keep_halt"], halt_row(halt))
            case SeenFact() if self._standing(connection, said.run_id):
                connection.execute(self._sql["dismiss"], (said.run_id, said.version, said.person, said.at))
            case GoneFact():
                self._forget(connection, said)
        return said

    def _append(self, connection: sqlite3.Connection, entry: EntryFact, position: int) -> None:
        mark = entry.mark(position)
        if entry.asked:
            if entry.seq != 1 or connection.execute(self._sql["wake"], (entry.asked[0],)).fetchall():
                raise Poisoned("its wake is the first entry of another run")
            if not self._writing.add(entry.rows(), mark, entry.asked, connection):
                raise Poisoned("its run is there already")
        else:
            version, head = self._standing(connection, entry.run_id) or (0, b"")
            if version == 0 or (version, head.hex()) != (entry.seq - 1, entry.previous):
                raise Poisoned(f"it does not continue entry {version} of its run")
            self._writing.advance(entry.rows(), mark, connection)

    def _standing(self, connection: sqlite3.Connection, run_id: str) -> tuple[int, bytes] | None:
        for version, head in connection.execute(self._sql["standing"], (run_id,)).fetchall():
            return version, head
        return None

    def _forget(self, connection: sqlite3.Connection, gone: GoneFact) -> None:
        """A run that moved on has more entries; one has fewer where the log was cleared of some already."""
        tombstones = {one.run_id: one for one in gone.tombstones}
        for run_id, (version, _) in gone.runs.items():
            if (self._standing(connection, run_id) or (0,))[0] > version:
                continue
            for table in OF_A_RUN:
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of ours
            if run_id in tombstones:
                connection.execute(self._sql["bury"], tombstones[run_id].row())
        for run_id, version in gone.artifacts.items():
            for (artifacts,) in connection.execute(self._sql["artifacts_of"], (run_id, version)).fetchall():
                connection.execute(self._sql["artifacts_go"], (run_id, gone.at, gone.rule, artifacts))

    def _skip(self, connection: sqlite3.Connection, fact: StoredMessage, skipped: Skipped) -> None:
        run_id = run_named_by(fact.subject) or skipped.run_id
        self._outcomes[fact.seq] = skipped = Skipped(run_id=run_id, level=skipped.level, why=skipped.why)
        connection.execute(self._sql["skip"], (fact.seq, skipped.run_id, skipped.level, skipped.why))
