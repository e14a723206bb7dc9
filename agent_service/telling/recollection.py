"""The commits of runs that were told here as they happened, so that they need not be read and decided once more.

A run is remembered from its first entry on without a gap, or not at all. It is a saving, never a source: what is not
remembered is read from the journal. Used from one event loop.
"""

from collections import OrderedDict

from agent_service.core.state import RunState
from agent_service.journal import Commit, Entry

BESIDE_EVENT = 2_000
"""What an entry and its state take beside the event's text, in bytes and roughly."""


class Recollection:
    """At most `capacity` bytes or so; the runs that were silent the longest are forgotten first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held = 0
        self._runs: OrderedDict[str, list[tuple[Entry, RunState]]] = OrderedDict()

    def add(self, commit: Commit) -> None:
        """Remember the run's next entry; after a gap the run is forgotten."""
        run_id = commit.entry.run_id
        known = self._runs.setdefault(run_id, [])
        if len(known) != commit.entry.seq - 1:
            self.forget(run_id)
            return
        known.append((commit.entry, commit.state))
        self._runs.move_to_end(run_id)
        self._held += _size(commit.entry)
        while self._held > self._capacity:
            self.forget(next(iter(self._runs)))

    def of(self, run_id: str) -> tuple[tuple[Entry, RunState], ...]:
        """All entries of the run, each with the state after it; none when it is not remembered."""
        return tuple(self._runs.get(run_id, ()))

    def forget(self, run_id: str) -> None:
        self._held -= sum(_size(entry) for entry, _ in self._runs.pop(run_id, ()))


def _size(entry: Entry) -> int:
    return len(entry.event) + BESIDE_EVENT
