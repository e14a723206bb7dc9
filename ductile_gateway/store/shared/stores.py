"""All that several gateways remember together, as one of them knows it."""

from functools import partial

from ductile_gateway.clock import SystemClock
from ductile_gateway.store.shared.call_rows import CallRows
from ductile_gateway.store.shared.deliveries import SharedDeliveries
from ductile_gateway.store.shared.ledger import SharedLedger, SharedOverdue, SharedReceipts
from ductile_gateway.store.shared.outbox import SharedOutbox
from ductile_gateway.store.shared.pins import SharedPins, copied
from ductile_gateway.store.shared.rows import Members, Rows
from ductile_gateway.store.stores import Stores
from groundwork.sqlite.file import SqliteFile


def shared_stores(file: SqliteFile, rows: Rows, call_rows: CallRows, *, members: Members, run_bytes: int) -> Stores:
    """Over the rows of all, with the own copy of them in `file`."""
    return Stores(
        ledger=SharedLedger(file, rows, call_rows, by=members.me, run_bytes=run_bytes),
        receipts=SharedReceipts(call_rows, by=members.me),
        overdue=SharedOverdue(file, call_rows),
        deliveries=SharedDeliveries(file, rows),
        outbox=SharedOutbox(file, rows, members=members),
        pins=SharedPins(partial(copied, file), rows, clock=SystemClock()),
    )
