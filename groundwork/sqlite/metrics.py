"""How long a store's transactions take, and what of that the disk does."""

from groundwork.sqlite.group_commit import Group
from groundwork.telemetry.metrics import Instruments


class StoreMetrics:
    def __init__(self, instruments: Instruments) -> None:
        self._groups = instruments.histogram(
            "agentic.store.commit.duration", "A transaction: all writes that waited, written and synced"
        )
        self._syncs = instruments.histogram(
            "agentic.store.sync.duration", "The COMMIT of a transaction, which is to sync it to the disk"
        )
        self._writes = instruments.counter("agentic.store.writes", "Writes that were committed", unit="{write}")

    def committed(self, group: Group) -> None:
        self._groups.record(group.seconds)
        self._syncs.record(group.sync_seconds)
        self._writes.add(by=group.writes)
