"""The entries of runs that this member sees to: those to be done, and those that are done, until all know it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from agent_service.store.facts import Span


class OwnEntries:
    """By run. Entries of others are nobody's business here, whatever is said to be done."""

    def __init__(self) -> None:
        self._coming: dict[str, set[int]] = {}
        self._open: dict[str, set[int]] = {}
        self._done: dict[str, set[int]] = {}
        self._told: dict[str, set[int]] = {}

    @contextmanager
    def coming(self, run_id: str, seq: int) -> Iterator[None]:
        """Inside, the entry is being stored; after that it is to be done, unless an error says that it may not be
        there."""
        self._coming.setdefault(run_id, set()).add(seq)
        try:
            yield
            self.add(run_id, (seq,))
        finally:
            _move(run_id, {seq}, self._coming)

    def add(self, run_id: str, seqs: Iterable[int]) -> None:
        self._open.setdefault(run_id, set()).update(seqs)

    def done(self, run_id: str, since: int, upto: int) -> bool:
        """Entries from `since` to `upto` are done, as far as they were to be done here; whether any was."""
        done = {seq for seq in self._open.get(run_id, ()) if since <= seq <= upto}
        _move(run_id, done, self._open, self._done)
        return bool(done)

    def to_tell(self, run_id: str) -> tuple[Span, ...]:
        """What is done of a run. It is said now, and known to all once it was `heard`."""
        done = set(self._done.get(run_id, ()))
        _move(run_id, done, self._done, self._told)
        return spans(done)

    def all_to_tell(self, runs: int) -> dict[str, tuple[Span, ...]]:
        return {run_id: self.to_tell(run_id) for run_id in list(self._done)[:runs]}

    def not_told(self, run_id: str, told: Iterable[Span]) -> None:
        _move(run_id, _entries(told), self._told, self._done)

    def heard(self, run_id: str, told: Iterable[Span]) -> None:
        _move(run_id, _entries(told), self._told)

    def say_again(self, run_id: str) -> bool:
        """What else was said of the run may not have been stored; whether there is any."""
        said = set(self._told.get(run_id, ()))
        _move(run_id, said, self._told, self._done)
        return bool(said)

    def left(self, run_id: str, seqs: Iterable[int]) -> tuple[int, ...]:
        """Those of the entries that are not known here to be done, or about to be."""
        known = set[int]().union(*(entries.get(run_id, ()) for entries in (self._coming, self._done, self._told)))
        return tuple(seq for seq in seqs if seq not in known)


def spans(seqs: Iterable[int]) -> tuple[Span, ...]:
    found: list[Span] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)


def _entries(told: Iterable[Span]) -> set[int]:
    return {seq for since, upto in told for seq in range(since, upto + 1)}


def _move(run_id: str, seqs: set[int], of: dict[str, set[int]], to: dict[str, set[int]] | None = None) -> None:
    there = of.get(run_id, set()) & seqs
    if there and to is not None:
        to.setdefault(run_id, set()).update(there)
    if there and not (left := of[run_id] - there):
        del of[run_id]
    elif there:
        of[run_id] = left
