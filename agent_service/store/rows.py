"""Commits as rows of the database, and runs as they are read from there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from agent_service.journal import Commit, Entry, Run, decode_state, encode_brief, encode_state
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A run's row, its brief and its items, as they are stored: texts as bytes, for what is no text is damage."""

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
            items=tuple((field, item) for _, item, field, *_ in grown),
        )

    def run(self) -> Run:
        items = ((field.decode(), item.decode()) for field, item in self.items)
        return Run(state=decode_state(self.state.decode(), self.brief.decode(), items), head=self.head.hex())


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
