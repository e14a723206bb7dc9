"""The gateway's database in a folder of a test, one part of it at a time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ductile_gateway.calls.call import AlreadyStarted, Asked, Intent, Receipt, Way
from ductile_gateway.store import open_store
from ductile_gateway.store.ledger import SqliteLedger, SqliteOverdue, SqliteReceipts
from groundwork.sqlite.file import SqliteFile
from tests.gateway.parts import a_request, asked_for

Part = TypeVar("Part")


@asynccontextmanager
async def opened(folder: Path, part: Callable[[SqliteFile], Part]) -> AsyncIterator[Part]:
    """The part of the database in an existing folder, such as `SqliteLedger`."""
    async with open_store(folder) as file:
        yield part(file)


def asked_by(key: str) -> Asked:
    """A request of which the call with this key comes; also where it could never be made."""
    run_id, step, *task, tool, attempt = key.split(":")
    named: dict[str, object] = {"run_id": run_id, "step": int(step), "tool": tool, "attempt": int(attempt)}
    named |= {"task": task[0], "round": int(task[1])} if task else {}
    return replace(asked_for(), request=a_request("save").model_copy(update=named))


class KeptReceipts(SqliteReceipts):
    """Receipts with the ledger that writes them, and the overdue jobs beside."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__(file)
        self.ledger = SqliteLedger(file)
        self.overdue = SqliteOverdue(file)

    async def begin(self, key: str, at: datetime, way: Way = "plugin", newest: str | None = None) -> bool:
        """The call is about to be sent; False if it was begun before."""
        intent = Intent(asked=asked_by(key), may_repeat=False, deadline_at=at)
        try:
            await self.ledger.intend(intent, Receipt(at, way=way, newest=newest))
        except AlreadyStarted:
            return False
        return True
