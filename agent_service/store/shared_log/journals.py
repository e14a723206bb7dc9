"""A run as it was read from its messages: its newest state, and which message led to each entry."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator

from agent_service.errors import Changed
from agent_service.run.journal import GENESIS, Run
from agent_service.store.rows import Loaded
from agent_service.store.shared_log.facts import EntryFact, RunRow


class Journal:
    """`begins`: its first entry that was read. `expected`: the entry that is known to be there. `whole_at`: where the
    newest message is that says all of the run; 0: its first. `by` and `positions` are by entry."""

    def __init__(self, run_id: str, subject: str, *, expected: int = 0, whole_at: int = 0, digest: str = "") -> None:
        self.run_id, self.subject, self.expected, self.digest = run_id, subject, expected, digest
        self.whole_at = whole_at
        self.begins = self.version = self.position = self.whole_seq = 0
        self.head = GENESIS
        self.by: dict[int, str] = {}
        self.positions: dict[int, int] = {}
        self.row: RunRow | None = None
        self.reading = asyncio.Lock()
        self._reserved: list[tuple[int, int, str]] = []
        self._state = self._brief = ""
        self._items: defaultdict[str, list[str]] = defaultdict(list)
        self._run: Run | None = None

    def add(self, fact: EntryFact, row: RunRow | None, position: int) -> None:
        """Raises Changed for an entry that does not continue the run."""
        entry = fact.entry
        if position <= self.position:
            return
        if row is None:
            raise Changed(self.run_id, f"the header of what lies at {position} of the log of all runs")
        if (entry.seq, entry.previous) != (self.version + 1, self.head) and (self.version or not fact.whole):
            raise Changed(self.run_id, f"entry {entry.seq} does not continue entry {self.version}")
        if fact.whole or entry.seq == 1:
            self.whole_seq, self.whole_at = entry.seq, position if fact.whole else 0
            self._items.clear()
        self.begins = self.begins or entry.seq
        self.version, self.head, self.position, self.row, self.digest = entry.seq, entry.hash, position, row, row.digest
        self.expected = max(self.expected, self.version)
        self.by[entry.seq], self.positions[entry.seq] = fact.by, position
        if entry.kind == "CallReserved":
            self._reserved.append((entry.seq, json.loads(entry.event)["call"], fact.by))
        self._state, self._brief, self._run = fact.state, fact.brief or self._brief, None
        for growth in fact.grown:
            self._items[growth.field][: growth.dropped] = []
            self._items[growth.field] += growth.added

    def run(self) -> Run:
        """Raises ValueError."""
        if self._run is None:
            self._run = self.loaded().run()
        return self._run

    def loaded(self) -> Loaded:
        return Loaded(
            run_id=self.run_id,
            seq=self.version,
            status=self.row.status.value if self.row else "",
            due_at=self.row.due_at if self.row else None,
            summary="",
            head=bytes.fromhex(self.head),
            state=self._state.encode(),
            brief=self._brief.encode(),
            items=tuple((field.encode(), item.encode()) for field, items in self._items.items() for item in items),
        )

    @property
    def artifacts(self) -> Iterator[str]:
        return map(str, map(json.loads, self._items["artifacts"]))

    def reserved(self, call: int, since: int) -> list[str]:
        """Under which messages something was set aside for a model call after an entry."""
        return [by for seq, of, by in self._reserved if seq > since and of == call]
