"""Commits as rows of the database, and runs as they are read from there.

What the texts of many runs have in common, the tools on offer above all, is cut out and stored once. The rest is valid
JSON, and the database's views put it together again byte for byte: hashes are over whole texts.
"""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from agent_service.run.journal import Commit, Entry, Run, decode_state, encode_brief, encode_state
from agent_service.run.lines import list_columns
from groundwork.sqlite.file import instant, microseconds
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A commit as the parameters of its statements, without its run's own row; None for what it does not store."""

    brief: tuple[str, str, str] | None
    entry: tuple[Any, ...]
    dropped: tuple[tuple[str, str, int], ...]
    added: tuple[tuple[str, str, str], ...]
    spent: tuple[str, str, float, int] | None = None
    opened: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    run_id: str
    seq: int
    status: str
    due_at: int | None
    summary: str
    head: bytes
    state: bytes
    brief: bytes
    items: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, run_id: str, rows: Iterable[tuple[Any, ...]]) -> Self:
        """The rows that the statement `load` gives, at least one."""
        (_, state, brief, head, version, status, summary, due_at), *grown = sorted(rows)
        return cls(
            run_id=run_id,
            seq=version,
            status=status,
            due_at=due_at,
            summary=summary,
            head=head,
            state=state,
            brief=brief,
            items=tuple([(field, item) for _, item, field, *_ in grown]),
        )

    def run(self) -> Run:
        items = [(field.decode(), item.decode()) for field, item in self.items]
        return Run(state=decode_state(self.state.decode(), self.brief.decode(), items), head=self.head.hex())


RunRow = tuple[Any, ...]
"""The parameters of a run's own row."""


def row_of_run(commits: Sequence[Commit], told: int = 0) -> RunRow:
    """After all of them."""
    entry, state = commits[-1].entry, commits[-1].state
    due_at = state.due_at
    return (
        state.status.value,
        entry.seq,
        bytes.fromhex(entry.hash),
        str(state.summary),
        microseconds(max([commit.entry.at for commit in commits])),
        microseconds(due_at) if due_at else None,
        encode_state(state),
        entry.run_id,
        told,
        to_json(list_columns(state)).decode(),
    )


def rows_of(commit: Commit, position: int | None = None) -> Rows:
    """`position`: in the journal of all runs; None: the next."""
    entry, brief = commit.entry, commit.brief
    hashes = bytes.fromhex(entry.previous), bytes.fromhex(entry.hash)
    dropped, added = list[tuple[str, str, int]](), list[tuple[str, str, str]]()
    for growth in commit.growth:
        if growth.dropped:
            dropped.append((entry.run_id, growth.field, growth.dropped))
        for item in growth.added:
            added.append((entry.run_id, growth.field, item))
    return Rows(
        brief=(entry.run_id, brief.goal, encode_brief(brief)) if brief else None,
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
        spent=_spent(commit),
        opened=(commit.state.brief.caller, commit.opened) if commit.opened else None,
    )


def _spent(commit: Commit) -> tuple[str, str, float, int] | None:
    brief, entry = commit.state.brief, commit.entry
    size = len(entry.event) if entry.seq == 1 and brief.caller and not brief.as_step else 0
    if not commit.paid_usd and not size:
        return None
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


BEGINS = '"skills":['
SHORTEST = 512
"""Characters that are worth a row of their own."""

_JSON = json.JSONDecoder()


class Cut(NamedTuple):
    """The rest of a text, its common part's digest, and how many characters follow that; both None for a whole text."""

    rest: str
    digest: bytes | None = None
    after: int | None = None


class CommonTexts:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def cut(self, text: str, connection: sqlite3.Connection) -> Cut:
        if BEGINS not in text:
            return Cut(text)
        begin, end = _bounds(text)
        if end - begin < SHORTEST:
            return Cut(text)
        common = text[begin:end]
        digest = hashlib.sha256(common.encode()).digest()
        connection.execute(self._sql["add_common_text"], (digest, common))
        return Cut(text[:begin] + text[end:], digest, len(text) - end)


def _bounds(text: str) -> tuple[int, int]:
    """From where to where the items of the list go; equal where the text is no JSON."""
    begin = text.rfind(BEGINS) + len(BEGINS)
    with contextlib.suppress(ValueError):
        _, end = _JSON.raw_decode(text, begin - 1)
        return begin, end - 1
    return 0, 0


Asked = tuple[str, str, int]
"""Of a new run: its wake id, the digest of what was asked for, and when it was accepted (µs)."""


class Writing:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._common = CommonTexts(sql)

    def add(self, run: RunRow, asked: Asked, entries: Iterable[Rows], connection: sqlite3.Connection) -> bool:
        """A new run; False where its id is taken, and nothing is written."""
        if connection.execute(self._sql["add_run"], (*run, *asked)).rowcount == 0:
            return False
        self._append(entries, connection)
        return True

    def advance(self, run: RunRow, entries: Sequence[Rows], connection: sqlite3.Connection) -> bool:
        """A run's next entries; False where it is not at the entry before them, and nothing is written."""
        if connection.execute(self._sql["advance_run"], (*run, len(entries))).rowcount == 0:
            return False
        self._append(entries, connection)
        return True

    def _append(self, entries: Iterable[Rows], connection: sqlite3.Connection) -> None:
        for rows in entries:
            if rows.brief is not None:
                run_id, goal, brief = rows.brief
                connection.execute(self._sql["put_brief"], (run_id, goal, *self._common.cut(brief, connection)))
            *before, event, facts, previous, own_hash, position = rows.entry
            rest, *common = self._common.cut(event, connection)
            entry = (*before, rest, facts, previous, own_hash, position, *common)
            connection.execute(self._sql["append_entry"], entry)
            if rows.dropped:
                connection.executemany(self._sql["drop_items"], rows.dropped)
            if rows.added:
                connection.executemany(self._sql["add_item"], rows.added)
            if rows.spent:
                connection.execute(self._sql["spend"], rows.spent)
            if rows.opened:
                connection.execute(self._sql["open"], rows.opened)
