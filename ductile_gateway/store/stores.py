"""All that the gateway remembers, as those who use it know it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ductile_gateway.clock import SystemClock
from ductile_gateway.ports import Receipts
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.store.ledger import SqliteLedger, SqliteOverdue, SqliteReceipts
from ductile_gateway.store.outbox import SqliteDeliveries, SqliteOutbox
from ductile_gateway.trust import Pins
from groundwork.sqlite.file import SqliteFile


@dataclass(slots=True, kw_only=True)
class Stores:
    """`on_owed` is called where several gateways owe deliveries, after any of them has changed what is owed."""

    ledger: SqliteLedger
    receipts: Receipts
    overdue: SqliteOverdue
    deliveries: SqliteDeliveries
    outbox: SqliteOutbox
    pins: Pins
    on_owed: Callable[[], None] = lambda: None

    @classmethod
    def embedded(cls, file: SqliteFile, *, folder: Path, run_bytes: int) -> Self:
        return cls(
            ledger=SqliteLedger(file, run_bytes=run_bytes),
            receipts=SqliteReceipts(file),
            overdue=SqliteOverdue(file),
            deliveries=SqliteDeliveries(file),
            outbox=SqliteOutbox(file),
            pins=PinnedKeys(folder, SystemClock()),
        )
