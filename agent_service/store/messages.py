"""What agents that share a store write to its log: entries of runs, and a few words beside them.

The body of an entry's message is the entry with what it leaves of the run. Its header is the run's row of the index:
lists, timers and limits read headers alone. Words beside runs are headers without a body; a store of one agent, and an
archive, have them, too. An older agent must do without an added field; else VERSION is raised, and older agents leave
the run to those who know it. Instants of a row are µs since 1970 UTC; hashes are hex digits.

Words become rows of tables, and headers the rows of an index, in the order of the log. A header that cannot be read
changes nothing: loading the run tells why.
"""

import json
import sqlite3
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from agent_service.archive.retention import ArtifactTombstone, NonNegative, Tombstone
from agent_service.core.waiting import Status
from agent_service.errors import NewerVersion, Tampered
from agent_service.run.changes import CallCharge, call_charge
from agent_service.run.inbound import turn_id
from agent_service.run.journal import RULES, Commit, Entry, Growth, encode_brief, encode_state
from agent_service.run.lines import list_columns
from agent_service.run.ports import Dismissal
from agent_service.store.database import load_queries
from agent_service.store.rows import halt_row, spent_with, tombstone_row
from groundwork.nats.publishing import StoredMessage
from groundwork.sqlite.file import microseconds
from schemas import subjects
from schemas.status import Halt
from schemas.values import dataclass

VERSION = 1
RULES_BELOW = 1000
LEVEL = VERSION * RULES_BELOW + RULES
ROW = "Agentic-Row"
GOAL, SUMMARY = 160, 80
"""Characters of them in the index."""
SNAPSHOT_EVERY = 64
"""After so many entries one says all of the run, so that no load reads more than these."""

Instant = Annotated[int, Field(ge=0, le=253_402_300_799_999_999)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryMessage:
    """`by`: the message under which it was committed. `whole`: all that grows is in `grown`."""

    v: int
    by: str
    entry: Entry
    state: str
    brief: str | None
    grown: tuple[Growth, ...]
    whole: bool = False


_ENTRY = TypeAdapter(EntryMessage)


def message_of(commit: Commit, by: str, *, whole: bool) -> EntryMessage:
    brief = encode_brief(commit.state.brief) if commit.brief or whole else None
    state, grown = encode_state(commit.state), commit.growth
    return EntryMessage(v=VERSION, by=by, entry=commit.entry, state=state, brief=brief, grown=grown, whole=whole)


def encoded(fact: EntryMessage) -> bytes:
    return _ENTRY.dump_json(fact)


def entry_in(fact: StoredMessage, run_id: str) -> EntryMessage:
    """Raises NewerVersion, and Tampered for what no agent wrote."""
    try:
        read = _ENTRY.validate_json(fact.body)
        level = read.v * RULES_BELOW + min(read.entry.rules, RULES_BELOW - 1)
    except ValueError:
        level, read = _version_of(fact.body) * RULES_BELOW, None
    if level > LEVEL:
        raise NewerVersion(run_id)
    if read is None or read.entry.run_id != run_id or read.entry.recomputed_hash() != read.entry.hash:
        raise Tampered(run_id, f"what lies at {fact.seq} of the log of all runs")
    return read


def _version_of(body: bytes) -> int:
    """As much of an entry as every version can read."""
    with suppress(ValueError, AttributeError, TypeError):
        return int(from_json(body).get("v", 0))
    return 0


class StoredHeader(BaseModel):
    """`v`: how new its writer is."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)

    v: NonNegative

    @property
    def text(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    @property
    def header(self) -> dict[str, str]:
        return {ROW: self.text}


class SideRecord(StoredHeader):
    """What is said beside runs."""

    @property
    def subject(self) -> str:
        raise NotImplementedError


class HaltRecord(SideRecord):
    by: str
    halt: Halt

    @property
    def subject(self) -> str:
        return subjects.STORED_HALT


class DismissalRecord(SideRecord):
    dismissal: Dismissal

    @property
    def subject(self) -> str:
        return subjects.stored_seen(self.dismissal.run_id)


class TombstoneRecord(SideRecord):
    """The tombstone of a run whose newest entry was `version`, and its artifacts, whose contents are to be removed."""

    stone: Tombstone
    version: NonNegative
    artifacts: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return subjects.stored_gone(self.stone.run_id)


class ArtifactTombstoneRecord(SideRecord):
    """A run stays, and its artifacts went, whose contents are to be removed."""

    gone: ArtifactTombstone
    artifacts: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return subjects.stored_bare(self.gone.run_id)


class Paid(BaseModel):
    """What a run cost on a day (UTC), and how many bytes of its wake came then."""

    model_config = StoredHeader.model_config

    day: str
    usd: float = 0.0
    size: NonNegative = 0


class RunRow(StoredHeader):
    """A run after an entry: its row of the index, and what limits hear of the entry."""

    wake_id: str
    digest: str
    accepted_at: Instant
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    head: Hash
    status: Status
    at: Instant
    due_at: Instant | None = None
    summary: str
    goal: str
    caller: str = ""
    line: dict[str, Any]
    bytes: NonNegative
    """Of all its messages."""
    whole_at: NonNegative = 0
    """The position of the newest message that says all of the run; 0: its first."""
    paid: Paid | None = None
    by: str
    told: NonNegative = 0
    """All is known to be done that entries up to it ask for."""
    opened: int = 0
    paid_usd: float = 0.0
    size: NonNegative = 0
    call: CallCharge | None = None

    @classmethod
    def of(
        cls, commit: Commit, before: "RunRow | None", *, by: str, digest: str, whole_at: int, size: int, told: int
    ) -> Self:
        entry, state = commit.entry, commit.state
        at, (day, _, usd, asked) = microseconds(entry.at), spent_with(commit)
        paid = before.paid if before else None
        if usd or asked:
            known = paid if paid and paid.day == day else Paid(day=day)
            paid = Paid(day=day, usd=known.usd + usd, size=known.size + asked)
        return cls(
            v=LEVEL,
            wake_id=state.wake_id,
            digest=digest,
            accepted_at=microseconds(state.accepted_at),
            seq=entry.seq,
            head=entry.hash,
            status=state.status,
            at=max(at, before.at if before else at),
            due_at=microseconds(state.due_at) if state.due_at else None,
            summary=str(state.summary)[:SUMMARY],
            goal=state.brief.goal[:GOAL],
            caller=state.brief.caller,
            line=list_columns(state),
            bytes=size + (before.bytes if before else 0),
            whole_at=whole_at,
            paid=paid,
            by=by,
            told=told,
            opened=commit.opened,
            paid_usd=usd,
            size=asked,
            call=call_charge(commit.outcome.event),
        )


S = TypeVar("S", bound=StoredHeader)
_SIDE_RECORDS: dict[str, type[SideRecord]] = {
    "halt": HaltRecord,
    "seen": DismissalRecord,
    "gone": TombstoneRecord,
    "bare": ArtifactTombstoneRecord,
}


def row_in(fact: StoredMessage) -> RunRow | None:
    """None for what a newer version wrote, or no agent."""
    return _read(RunRow, fact.headers.get(ROW, ""))


def record_in(subject: str, text: str) -> SideRecord | None:
    """None also for a subject that is of no word."""
    kind = _SIDE_RECORDS.get(subject.removeprefix(f"{subjects.STORE}.").partition(".")[0])
    return _read(kind, text) if kind else None


@lru_cache(maxsize=512)  # a fact is read by the thread that writes the index, and once more by those who hear of it
def _read(kind: type[S], text: str) -> S | None:
    try:
        said = kind.model_validate_json(text)
    except ValidationError:
        return None
    return said if said.v <= LEVEL else None


RUN_TABLES = ("items", "briefs", "dismissals", "artifacts_gone", "journal", "runs")
"""The tables that hold something of a run, each before those that it refers to."""
OTHER_TABLES = ("spending", "halts", "gone")


class IndexWriter:
    def __init__(self) -> None:
        self._sql = load_queries()

    def apply(self, connection: sqlite3.Connection, fact: StoredMessage) -> None:
        """May run more than once, for a transaction that is begun again."""
        if fact.subject.startswith(subjects.STORED_RUNS.removesuffix(">")):
            self._apply_run(connection, fact.subject.rpartition(".")[2], row_in(fact))
        elif word := record_in(fact.subject, fact.headers.get(ROW, "")):
            self.say(connection, word)

    def say(self, connection: sqlite3.Connection, word: SideRecord) -> None:
        """Words about a run that is not there change nothing."""
        match word:
            case HaltRecord(halt=halt):
                connection.execute(self._sql["keep_halt"], halt_row(halt))
            case DismissalRecord(dismissal=seen) if self._version_of(connection, seen.run_id):
                dismissed = seen.run_id, seen.version, seen.by, microseconds(seen.at)
                connection.execute(self._sql["dismiss"], dismissed)
            case ArtifactTombstoneRecord(gone=gone, artifacts=left) if self._version_of(connection, gone.run_id):
                values = gone.run_id, microseconds(gone.gone_at), gone.rule, json.dumps(left)
                connection.execute(self._sql["artifacts_go"], values)
            case TombstoneRecord(stone=stone) if self._version_of(connection, stone.run_id) <= word.version:
                for table in RUN_TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (stone.run_id,))  # noqa: S608 - ours
                connection.execute(self._sql["bury"], (*tombstone_row(stone), json.dumps(word.artifacts)))

    def forget(self, connection: sqlite3.Connection) -> None:
        """Empties the index: it is made again, or of another log."""
        for table in (*RUN_TABLES, *OTHER_TABLES):
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
        paid, own = row.paid, row.by == turn_id(run_id, row.seq)
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
