"""The agent's database `runs.db`: its statements by name (`-- name: x`), and its rows, written and read back.

The schema is in migrations/. Text that many runs share, mostly the tools on offer, is cut out and stored once. The rest
is valid JSON, and the views of the database join both byte for byte, because hashes are over whole texts.
"""

import hashlib
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import to_json

from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.run.inbound import turn_id
from agent_service.run.journal import Commit, Entry, Run, decode_state, encode_brief, encode_state
from agent_service.store.lines import list_columns
from agent_service.store.messages import (
    ROW,
    ArtifactTombstoneRecord,
    DismissalRecord,
    HaltRecord,
    Paid,
    RunRow,
    SideRecord,
    TombstoneRecord,
    record_in,
    row_in,
)
from groundwork.nats.publishing import StoredMessage
from groundwork.service.errors import Misconfigured
from groundwork.sqlite import file
from groundwork.sqlite.file import SqliteFile, Values, instant, microseconds
from schemas import subjects

FILE = "runs.db"
MIGRATIONS = files(__package__) / "migrations"
BYTES_PER_ENTRY = 500
"""About what an entry takes in tables and indexes besides its texts."""
SHARED_TEXT_BEGINS = '"skills":['
SHORTEST_SHARED_TEXT = 512
"""Characters that are worth a row of their own."""
RUN_TABLES = ("items", "briefs", "dismissals", "artifacts_gone", "journal", "runs")
"""Tables with rows of a run, each before those that it refers to."""

STATE = "its state or brief"
"""The part of a run that is damaged."""

_JSON = json.JSONDecoder()
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)

log = logging.getLogger(__name__)

T = TypeVar("T")
Statement = tuple[str, Values]
"""A statement's name in queries.sql, and its parameters."""


@cache
def load_queries() -> dict[str, str]:
    text = (files(__package__) / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def open_database(
    folder: Path, *, durable: bool = True, reserve: bool = False
) -> AbstractAsyncContextManager[SqliteFile]:
    """Opens the database in `folder`, made if absent. Not `durable`: a copy. Raises Misconfigured, TryAgain."""
    return file.open_file(folder / FILE, MIGRATIONS, durable=durable, reserve=reserve)


def open_for_reading(folder: Path) -> AbstractAsyncContextManager[SqliteFile]:
    """Opens it read-only, also while another process writes. Raises Misconfigured unless one of this version exists."""
    path = folder / FILE
    if not path.is_file():
        raise Misconfigured(f"there is no database {path}: name the configuration of the agent that wrote it")
    return file.open_for_reading(path, MIGRATIONS)


class Quarantine(dict[str, Damaged]):
    """Runs whose stored rows are damaged. In memory only, so a restart after a repair tries them all again."""

    def add(self, found: Damaged) -> None:
        if found.run_id not in self:
            self[found.run_id] = found
            log.error("run left alone", extra={"run_id": found.run_id, "why": str(found)})

    def check(self, run_id: str) -> None:
        if found := self.get(run_id):
            raise type(found)(found.run_id, found.what)


def run_of(run_id: str, rows: Iterable[tuple[Any, ...]]) -> Run:
    """Reads the rows of the statement `load`, at least one. Raises Damaged."""
    (_, state, brief, head), *grown = sorted(rows)
    try:
        items = [(field.decode(), item.decode()) for _, item, field, _ in grown]
        return Run(state=decode_state(state.decode(), brief.decode(), items), head=head.hex())
    except ValueError as error:
        raise Damaged(run_id, STATE) from error


def entry_of(run_id: str, row: Sequence[Any]) -> Entry:
    seq, at, kind, event, facts, previous, own_hash = row
    return Entry(
        run_id=run_id,
        seq=seq,
        at=instant(at),
        kind=kind,
        event=event,
        facts=facts,
        previous=previous.hex(),
        hash=own_hash.hex(),
    )


_READ: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("at", "since", "until", "accepted_at", "updated_at", "ended_at", "gone_at"), instant),
    "head": bytes.hex,
    "status": Status,
    "over": bool,
}


def named(names: Iterable[str], row: Iterable[Any]) -> dict[str, Any]:
    """The columns of a row by the names of their fields."""
    found = zip(names, row, strict=False)
    return {name: _READ[name](it) if name in _READ and it is not None else it for name, it in found}


def value_of(kind: Callable[..., T], row: Sequence[Any]) -> T:
    """The value whose first fields a row has, in their order."""
    return kind(**named(kind.__annotations__, row))


def row_of(value: object) -> Values:
    fields = (getattr(value, name) for name in type(value).__annotations__)
    return tuple(microseconds(it) if isinstance(it, datetime) else it for it in fields)


def statements_of(
    commit: Commit, *, digest: str = "", dispatched_up_to: int = 0, position: int | None = None
) -> list[Statement]:
    """Statements that store a commit, that of its run's row first. `digest`: of the wake, if the run may be new.
    `position`: in the journal of all runs; None: the next."""
    entry, state, run_id, due_at = commit.entry, commit.state, commit.entry.run_id, commit.state.due_at
    at, head, status = microseconds(entry.at), bytes.fromhex(entry.hash), state.waiting.status
    row: Values = (
        entry.seq,
        head,
        str(state.summary),
        at,
        microseconds(due_at) if due_at else None,
        dispatched_up_to,
        to_json(list_columns(state, due_at)).decode(),
        encode_state(state),
        2 * len(entry.event.encode()) + len(entry.facts.encode()) + BYTES_PER_ENTRY,
        run_id,
    )
    statements: list[Statement] = [("advance_run", row)]
    if digest and commit.before is None:
        brief, parent = state.brief, state.brief.parent
        asked = state.wake_id, digest, microseconds(state.accepted_at), brief.goal, brief.caller
        statements = [("add_run", (status.value, *row, *asked, parent.run_id if parent else None))]
    elif commit.before and commit.before.waiting.status is not status:
        statements.append(("set_status", (status.value, run_id)))
    if commit.brief:
        text = _without_shared_text(encode_brief(commit.brief), statements)
        statements.append(("put_brief", (run_id, *text)))
    rest, *common = _without_shared_text(entry.event, statements)
    columns = run_id, entry.seq, at, entry.kind, rest, entry.facts, bytes.fromhex(entry.previous), head
    statements.append(("append_entry", (*columns, position, *common)))
    for growth in commit.growth:
        if growth.dropped:
            statements.append(("drop_items", (run_id, growth.field, growth.dropped)))
        statements += [("add_item", (run_id, growth.field, item)) for item in growth.added]
    if commit.before is None or commit.paid_usd:
        *_, usd, wake_bytes = spending = commit.spending
        if usd or wake_bytes:
            statements.append(("spend", spending))
    return statements


def _without_shared_text(text: str, statements: list[Statement]) -> tuple[str, bytes | None, int | None]:
    """The rest of a text; the digest of its shared text, if any, and the number of characters that follow that."""
    if (begin := text.rfind(SHARED_TEXT_BEGINS)) >= 0:
        begin += len(SHARED_TEXT_BEGINS)
        with suppress(ValueError):
            end = _JSON.raw_decode(text, begin - 1)[1] - 1
            if end - begin >= SHORTEST_SHARED_TEXT:
                shared = text[begin:end]
                digest = hashlib.sha256(shared.encode()).digest()
                statements.append(("add_common_text", (digest, shared)))
                return text[:begin] + text[end:], digest, len(text) - end
    return text, None, None


def store_commit(statements: Sequence[Statement], connection: sqlite3.Connection) -> bool:
    """Executes all of them unless the first changes no row, because the run's row is not as it expects."""
    sql = load_queries()
    for number, (name, values) in enumerate(statements):
        if connection.execute(sql[name], values).rowcount == 0 and number == 0:
            return False
    return True


def apply_message(connection: sqlite3.Connection, message: StoredMessage) -> None:
    """Writes a message of the log to the index. A header that cannot be read changes nothing; to load its run tells
    why. Repeatable, because the transaction may be begun again."""
    if message.subject.startswith(subjects.STORED_RUNS.removesuffix(">")):
        _apply_row(connection, message.subject.rpartition(".")[2], row_in(message))
    elif record := record_in(message.subject, message.headers.get(ROW, "")):
        apply_records([record], connection)


def apply_records(records: Iterable[SideRecord], connection: sqlite3.Connection) -> None:
    """A record of an unknown run changes nothing."""
    sql = load_queries()
    for record in records:
        match record:
            case HaltRecord(halt=halt):
                connection.execute(sql["keep_halt"], row_of(halt))
            case DismissalRecord(dismissal=seen) if _version_of(connection, seen.run_id):
                connection.execute(sql["dismiss"], row_of(seen))
            case ArtifactTombstoneRecord(gone=gone, artifacts=left) if _version_of(connection, gone.run_id):
                connection.execute(sql["artifacts_go"], (*row_of(gone), json.dumps(left)))
            case TombstoneRecord(stone=stone, artifacts=left) if (
                _version_of(connection, stone.run_id) <= record.version
            ):
                for table in RUN_TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (stone.run_id,))  # noqa: S608 - ours
                connection.execute(sql["bury"], (*row_of(stone), json.dumps(left)))


def clear_index(connection: sqlite3.Connection) -> None:
    for table in (*RUN_TABLES, "spending", "halts", "gone"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
    connection.execute("UPDATE tallies SET runs = 0")


def _apply_row(connection: sqlite3.Connection, run_id: str, row: RunRow | None) -> None:
    sql = load_queries()
    if row is None:
        connection.execute(sql["leave_alone"], (run_id,))
        return
    version, _, line = connection.execute(sql["indexed"], (run_id,)).fetchone() or (0, "", "{}")
    is_deleted = not version and connection.execute(sql["tombstone"], (run_id,)).fetchall()
    if version >= row.seq or is_deleted:
        return
    paid, before = row.paid and row.paid.model_dump(exclude_defaults=True), json.loads(line).get("paid")
    more = {"whole_at": row.whole_at, "own": row.by == turn_id(run_id, row.seq), "paid": paid}
    line = to_json(row.line | {name: value for name, value in more.items() if value}).decode()
    parent = row.line.get("parent_run_id")
    run = row.status, row.seq, bytes.fromhex(row.head), row.summary, row.at, row.due_at, row.dispatched, line
    of_wake = row.wake_id, row.digest, row.accepted_at, row.goal, row.caller, str(parent) if parent else None
    connection.execute(sql["add_run"], (*run, "", row.bytes, run_id, *of_wake))
    if row.paid and paid != before:
        known = Paid(**before) if before and before["day"] == row.paid.day else Paid(day=row.paid.day)
        spent = row.paid.day, row.caller, row.paid.usd - known.usd, row.paid.size - known.size
        connection.execute(sql["spend"], spent)


def _version_of(connection: sqlite3.Connection, run_id: str) -> int:
    return sum(version for (version,) in connection.execute(load_queries()["version"], (run_id,)))
