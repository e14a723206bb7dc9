"""The record of events from outside that several gateways have in common. Fills the port Deliveries of the ingress."""

from datetime import datetime

from ductile_gateway.store.deliveries import OLD_RECEIVED, SqliteDeliveries
from ductile_gateway.store.shared.rows import (
    RECEIVED,
    Row,
    Rows,
    framed,
    subject_of,
    subject_of_forgotten,
    told_before,
    unframed,
)
from groundwork.sqlite.file import SqliteFile, microseconds

ALL = -1


class SharedDeliveries(SqliteDeliveries):
    """What was received, by whichever gateway. `file` is the own copy."""

    def __init__(self, file: SqliteFile, rows: Rows) -> None:
        super().__init__(file)
        self._rows = rows

    async def find(self, source: str, identity: str) -> str | None:
        row = await self._rows.read(subject_of(RECEIVED, source, identity))
        return None if row.body is None else str(unframed(row.body)[0]["event_key"])

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        columns = {"source": source, "identity": identity, "event_key": event_key, "received_at": microseconds(at)}

        def work(row: Row) -> bytes | None:
            return framed(columns) if row.body is None else None

        await self._rows.change(subject_of(RECEIVED, source, identity), work)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        if old := await self._file.read(OLD_RECEIVED, (before, ALL)):
            await self._rows.forget([subject_of(RECEIVED, *names) for names in old])
            await self._rows.tell(subject_of_forgotten(RECEIVED), told_before(before))
