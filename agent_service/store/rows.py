"""Commits as rows of the database, and runs as they are read from there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from agent_service.journal import Commit, Entry, Run, decode_state, encode_brief, encode_state
from agent_service.store.seals import Apart, Row, apart_of
from groundwork.sqlite.file import instant, microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A commit as the parameters of its statements; None for what it does not store."""

    run: tuple[Any, ...]
    brief: tuple[str, str, str] | None
    entry: tuple[Any, ...]
    dropped: tuple[tuple[str, str, int], ...]
    added: tuple[tuple[str, str, str], ...]
    spent: tuple[str, str, float, int] | None = None
    opened: tuple[str, int] | None = None

    def sealed(self) -> Row:
        """What of the run's row a seal is over."""
        status, seq, head, summary, _, due_at, state, run_id, *_ = self.run
        return Row(
            run_id=run_id, seq=seq, status=status, due_at=due_at, summary=summary, head=head, state=state.encode()
        )

    def apart(self, before: Apart) -> Apart:
        """What is beside the row once this is stored."""
        after = before.with_brief(self.brief[2]) if self.brief else before
        dropped = {field: count for _, field, count in self.dropped}
        for field in dict.fromkeys((*dropped, *(field for _, field, _ in self.added))):
            added = (item.encode() for _, of, item in self.added if of == field)
            after = after.with_items(field, dropped.get(field, 0), added)
        return after


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run as it is stored: its row, and what is beside it. Texts are bytes, for what is no text is damage."""

    row: Row
    seal: str | None
    brief: bytes
    items: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, run_id: str, rows: Iterable[tuple[Any, ...]]) -> Self:
        """The rows that the statement `load` gives, at least one."""
        (_, state, brief, head, version, status, summary, due_at, seal), *grown = sorted(rows)
        row = Row(run_id=run_id, seq=version, status=status, due_at=due_at, summary=summary, head=head, state=state)
        return cls(row, seal, brief, tuple((field, item) for _, item, field, *_ in grown))

    def apart(self) -> Apart:
        return apart_of(self.brief, ((field.decode(errors="replace"), item) for field, item in self.items))

    def run(self) -> Run:
        """The run. Raises ValueError."""
        items = ((field.decode(), item.decode()) for field, item in self.items)
        return Run(state=decode_state(self.row.state.decode(), self.brief.decode(), items), head=self.row.head.hex())


def rows_of(commit: Commit, told: int = 0) -> Rows:
    entry, state, brief = commit.entry, commit.state, commit.brief
    head, at = bytes.fromhex(entry.hash), microseconds(entry.at)
    due_at = microseconds(state.due_at) if state.due_at else None
    effects_digest, previous = bytes.fromhex(entry.effects_digest), bytes.fromhex(entry.previous)
    return Rows(
        run=(state.status.value, entry.seq, head, state.summary, at, due_at, encode_state(state), entry.run_id, told),
        brief=(entry.run_id, brief.goal, encode_brief(brief)) if brief else None,
        entry=(entry.run_id, entry.seq, at, entry.kind, entry.event, effects_digest, previous, head),
        dropped=tuple((entry.run_id, growth.field, growth.dropped) for growth in commit.growth if growth.dropped),
        added=tuple((entry.run_id, growth.field, item) for growth in commit.growth for item in growth.added),
        spent=_spent(commit),
        opened=(state.brief.caller, commit.opened) if commit.opened else None,
    )


def _spent(commit: Commit) -> tuple[str, str, float, int] | None:
    """The day, the caller, and what the entry adds to their sums: money, and the bytes of a wake."""
    brief, entry = commit.state.brief, commit.entry
    size = len(entry.event) if entry.seq == 1 and brief.caller and not brief.as_step else 0
    if not commit.paid_usd and not size:
        return None
    return f"{entry.at:%Y-%m-%d}", brief.caller, commit.paid_usd, size


def entry_of(run_id: str, row: Sequence[Any]) -> Entry:
    seq, at, kind, event, effects_digest, previous, own_hash = row
    return Entry(
        run_id=run_id,
        seq=seq,
        at=instant(at),
        kind=kind,
        event=event,
        effects_digest=effects_digest.hex(),
        previous=previous.hex(),
        hash=own_hash.hex(),
    )
