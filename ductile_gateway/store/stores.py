"""All that the gateway remembers, as those who use it know it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ductile_gateway.clock import SystemClock
from ductile_gateway.store.ledger import CallLedger, CallReceipts, OverdueJobs
from ductile_gateway.store.outbox import Members, OwedNotifications, ReceivedDeliveries
from ductile_gateway.store.pins import FilePins
from ductile_gateway.store.rows import LocalRows, Rows
from ductile_gateway.trust import Pins
from groundwork.sqlite.file import SqliteFile


@dataclass(frozen=True, slots=True)
class Alone:
    """Fills Members where there is only one gateway."""

    me: str = ""
    live: frozenset[str] = frozenset({""})


@dataclass(slots=True, kw_only=True)
class Stores:
    """`on_owed` is called where several gateways owe notifications, after any of them has changed what is owed."""

    rows: Rows
    ledger: CallLedger
    receipts: CallReceipts
    overdue: OverdueJobs
    deliveries: ReceivedDeliveries
    outbox: OwedNotifications
    pins: Pins
    on_owed: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, rows: Rows, pins: Pins, *, members: Members, run_bytes: int) -> Self:
        return cls(
            rows=rows,
            ledger=CallLedger(rows, by=members.me, run_bytes=run_bytes),
            receipts=CallReceipts(rows, by=members.me),
            overdue=OverdueJobs(rows),
            deliveries=ReceivedDeliveries(rows),
            outbox=OwedNotifications(rows, members),
            pins=pins,
        )

    @classmethod
    def embedded(cls, file: SqliteFile, *, folder: Path, run_bytes: int) -> Self:
        return cls.of(LocalRows(file), FilePins(folder, SystemClock()), members=Alone(), run_bytes=run_bytes)
