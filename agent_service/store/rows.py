"""Commits as rows of the database, and what a row says, read back.

What the texts of many runs have in common, the tools on offer above all, is cut out and stored once. The rest is valid
JSON, and the database's views put it together again byte for byte: hashes are over whole texts.
"""

import contextlib
import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_json

from agent_service.archive.retention import Tombstone
from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.run.journal import Commit, Entry, Run, decode_state, encode_brief, encode_state
from agent_service.run.lines import list_columns
from agent_service.store.database import load_queries
from groundwork.sqlite.file import instant, microseconds
from schemas.status import Halt
from schemas.values import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRows:
    """A commit as the parameters of its statements, without its run's own row; None for what it does not store."""

    brief: str | None
    entry: tuple[Any, ...]
    dropped: tuple[tuple[str, str, int], ...]
    added: tuple[tuple[str, str, str], ...]
    spent: tuple[str, str, float, int] | None


def run_of(rows: Iterable[tuple[Any, ...]]) -> Run:
    """The rows that the statement `load` gives, at least one. Raises ValueError."""
    (_, state, brief, head), *grown = sorted(rows)
    items = [(field.decode(), item.decode()) for _, item, field, _ in grown]
    return Run(state=decode_state(state.decode(), brief.decode(), items), head=head.hex())


class Quarantine:
    """Runs whose stored rows are damaged, in memory only: after a repair and a restart all is tried."""

    def __init__(self) -> None:
        self._why: dict[str, Damaged] = {}

    def __len__(self) -> int:
        return len(self._why)

    def add(self, found: Damaged) -> None:
        if found.run_id not in self._why:
            self._why[found.run_id] = found
            log.error("run left alone", extra={"run_id": found.run_id, "why": str(found)})

    def check(self, run_id: str) -> None:
        if found := self._why.get(run_id):
            raise type(found)(found.run_id, found.what)

    def why(self, run_id: str) -> str:
        found = self._why.get(run_id)
        return found.what if found else ""

    def without(self, run_ids: Iterable[str]) -> list[str]:
        return [run_id for run_id in run_ids if run_id not in self._why]


PER_ENTRY = 500
"""About how many bytes of tables and indexes an entry takes besides its texts."""
RunColumns = tuple[Any, ...]
"""The parameters of a run's own row."""


def row_of_run(commits: Sequence[Commit], told: int = 0) -> RunColumns:
    """After all of them."""
    entry, state, size = commits[-1].entry, commits[-1].state, 0
    for commit in commits:
        size += 2 * len(commit.entry.event) + len(commit.entry.facts) + PER_ENTRY
    due_at = state.due_at
    return (
        state.status.value,
        entry.seq,
        bytes.fromhex(entry.hash),
        str(state.summary),
        microseconds(max([commit.entry.at for commit in commits])),
        microseconds(due_at) if due_at else None,
        told,
        to_json(list_columns(state)).decode(),
        encode_state(state),
        size,
        entry.run_id,
    )


def rows_of(commit: Commit, position: int | None = None) -> CommitRows:
    """`position`: in the journal of all runs; None: the next."""
    entry, brief = commit.entry, commit.brief
    hashes = bytes.fromhex(entry.previous), bytes.fromhex(entry.hash)
    dropped, added = list[tuple[str, str, int]](), list[tuple[str, str, str]]()
    for growth in commit.growth:
        if growth.dropped:
            dropped.append((entry.run_id, growth.field, growth.dropped))
        for item in growth.added:
            added.append((entry.run_id, growth.field, item))
    return CommitRows(
        brief=encode_brief(brief) if brief else None,
        entry=(
            entry.run_id,
            entry.seq,
            microseconds(entry.at),
            entry.kind,
            entry.event,
            entry.facts,
            *hashes,
            position,
        ),
        dropped=tuple(dropped),
        added=tuple(added),
        spent=spent_with(commit) if commit.paid_usd or entry.seq == 1 else None,
    )


def spent_with(commit: Commit) -> tuple[str, str, float, int]:
    """Day (UTC), caller, what an entry cost in USD, and the bytes of its caller's wake."""
    brief, entry = commit.state.brief, commit.entry
    size = len(entry.event) if entry.seq == 1 and brief.caller and not brief.as_step else 0
    return f"{entry.at:%Y-%m-%d}", brief.caller, commit.paid_usd, size


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


def halt_of(row: Sequence[Any]) -> Halt:
    number, since, by, reason, until, until_by, over = row
    ended = instant(until) if until is not None else None
    told = {"by": by, "reason": reason, "until_by": until_by, "over": bool(over)}
    return Halt(number=number, since=instant(since), until=ended, **told)


def halt_row(halt: Halt) -> tuple[object, ...]:
    until = microseconds(halt.until) if halt.until else None
    return halt.number, microseconds(halt.since), halt.by, halt.reason, until, halt.until_by, halt.over


def tombstone_of(row: Sequence[Any]) -> Tombstone:
    run_id, wake_id, wake_digest, status, last, ended_at, at, rule = row
    about: dict[str, Any] = {"run_id": run_id, "wake_id": wake_id, "wake_digest": wake_digest, "last": last}
    return Tombstone(status=Status(status), ended_at=instant(ended_at), gone_at=instant(at), rule=rule, **about)


def tombstone_row(stone: Tombstone) -> tuple[Any, ...]:
    instants = microseconds(stone.ended_at), microseconds(stone.gone_at)
    return stone.run_id, stone.wake_id, stone.wake_digest, stone.status.value, stone.last, *instants, stone.rule


BEGINS = '"skills":['
SHORTEST = 512
"""Characters that are worth a row of their own."""

_JSON = json.JSONDecoder()

Cut = tuple[str, bytes | None, int | None]
"""The rest of a text, its common part's digest, and how many characters follow that; both None for a whole text."""


def _bounds(text: str) -> tuple[int, int]:
    """From where to where the items of the list go; equal where the text is no JSON."""
    begin = text.rfind(BEGINS) + len(BEGINS)
    with contextlib.suppress(ValueError):
        _, end = _JSON.raw_decode(text, begin - 1)
        return begin, end - 1
    return 0, 0


NewRunColumns = tuple[str, str, int, str, str, str | None]
"""Of a new run: its wake id, the digest of what was asked for, when it was accepted (µs), goal, caller, and parent."""


def new_run_columns(state: RunState, digest: str) -> NewRunColumns:
    brief = state.brief
    parent = brief.parent.run_id if brief.parent else None
    return state.wake_id, digest, microseconds(state.accepted_at), brief.goal, brief.caller, parent


class EntryWriter:
    def __init__(self) -> None:
        self._sql = load_queries()

    def add(
        self, run: RunColumns, asked: NewRunColumns, entries: Iterable[CommitRows], connection: sqlite3.Connection
    ) -> bool:
        """A new run; False where its id is taken, and nothing is written."""
        if connection.execute(self._sql["add_run"], (*run, *asked)).rowcount == 0:
            return False
        self._append(entries, connection)
        return True

    def advance(self, run: RunColumns, rows: CommitRows, connection: sqlite3.Connection) -> bool:
        """A run's next entry; False where it is not at the entry before, and nothing is written."""
        if connection.execute(self._sql["advance_run"], run).rowcount == 0:
            return False
        self._append((rows,), connection)
        return True

    def _append(self, entries: Iterable[CommitRows], connection: sqlite3.Connection) -> None:
        for rows in entries:
            *before, event, facts, previous, own_hash, position = rows.entry
            if rows.brief is not None:
                connection.execute(self._sql["put_brief"], (before[0], *self._cut(rows.brief, connection)))
            rest, *common = self._cut(event, connection)
            entry = (*before, rest, facts, previous, own_hash, position, *common)
            connection.execute(self._sql["append_entry"], entry)
            if rows.dropped:
                connection.executemany(self._sql["drop_items"], rows.dropped)
            if rows.added:
                connection.executemany(self._sql["add_item"], rows.added)
            if rows.spent and (rows.spent[2] or rows.spent[3]):
                connection.execute(self._sql["spend"], rows.spent)

    def _cut(self, text: str, connection: sqlite3.Connection) -> Cut:
        if BEGINS not in text:
            return text, None, None
        begin, end = _bounds(text)
        if end - begin < SHORTEST:
            return text, None, None
        common = text[begin:end]
        digest = hashlib.sha256(common.encode()).digest()
        connection.execute(self._sql["add_common_text"], (digest, common))
        return text[:begin] + text[end:], digest, len(text) - end
