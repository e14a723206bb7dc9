"""A process's copy of a shared log in SQLite: messages applied in order, and the position reached.

It can be rebuilt from the log, so it is not synced to the disk. It starts again if the log is another one, or shorter.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn

from groundwork.nats.following import Batch
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Extent, SharedLog
from groundwork.service.errors import TryAgain, patiently
from groundwork.sqlite.file import SqliteFile

PATIENCE_S = 10.0

SAME_INSTANT = timedelta(milliseconds=1)
"""Difference between two instants of one message, which the server rounds in two ways."""

Apply = Callable[[sqlite3.Connection, StoredMessage], None]
Forget = Callable[[sqlite3.Connection], object]
Applied = Callable[[Sequence[StoredMessage]], object]


def _nobody(_: Sequence[StoredMessage]) -> None: ...


class Replica:
    """The schema has a table `replica (created, reached, at)`. `apply` writes a message in the writer thread, `forget`
    empties the tables, and `applied` is called on the loop, before waiters. None of the three raises."""

    def __init__(
        self, log: SharedLog, file: SqliteFile, apply: Apply, *, forget: Forget, applied: Applied = _nobody
    ) -> None:
        self._log = log
        self._file = file
        self._apply = apply
        self._forget = forget
        self.applied = applied
        self.reached = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._opened = asyncio.Event()

    async def run(self) -> NoReturn:
        """Follows the log for ever. Raises Misconfigured, Broken."""
        await self._open()
        async with aclosing(self._log.follow(self.reached)) as followed:
            async for batch in followed:
                await self._take(batch)
        raise AssertionError("a log has no end")

    async def wait(self, seq: int) -> None:
        """Returns when the message at `seq` is here. Raises TryAgain when nothing has come for PATIENCE_S."""
        while self.reached < seq:
            before, here = self.reached, asyncio.get_running_loop().create_future()
            self._waiting.append((seq, here))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await here
            except TimeoutError as error:
                if self.reached == before:
                    behind = f"this process has copied the facts up to {before}, and not those up to {seq}"
                    raise TryAgain(f"{behind}: it is cut off from NATS, or out of room") from error

    async def caught_up(self) -> None:
        """Returns when everything is here that is in the log now. Raises TryAgain as `wait` does."""
        await self._opened.wait()
        await self.wait(await self._log.end())

    async def _open(self) -> None:
        known = await self._file.read("SELECT created, reached, at FROM replica")
        if not known or not await self._is_same_log(*known[0]):
            extent = await patiently(self._log.extent)
            await self._file.write(partial(self._begin_anew, extent))
        ((self.reached,),) = await self._file.read("SELECT reached FROM replica")
        self._opened.set()

    async def _is_same_log(self, created: str, reached: int, at: str) -> bool:
        """True if the copy is of this log. A log restored from a backup has the same name and age, so the newest copied
        message is compared."""
        extent = await patiently(partial(self._log.extent, reached))
        if extent.created != created or reached > extent.last_seq:
            return False
        return extent.stored_at is None or abs(extent.stored_at - datetime.fromisoformat(at)) < SAME_INSTANT

    async def _take(self, batch: Batch) -> None:
        await patiently(lambda: self._file.write(partial(self._write, batch)))  # on a full disk, until there is room
        self.applied(batch.messages)
        self.reached = batch.last_seq
        for seq, here in self._waiting:
            if seq <= self.reached and not here.done():
                here.set_result(None)
        self._waiting = [(seq, here) for seq, here in self._waiting if not here.done()]

    def _begin_anew(self, extent: Extent, connection: sqlite3.Connection) -> None:
        self._forget(connection)
        connection.execute("DELETE FROM replica")
        connection.execute("INSERT INTO replica (created, reached, at) VALUES (?, 0, '')", (extent.created,))

    def _write(self, batch: Batch, connection: sqlite3.Connection) -> None:
        for fact in batch.messages:
            self._apply(connection, fact)
        connection.execute("UPDATE replica SET reached = ?, at = ?", (batch.last_seq, batch.at.isoformat()))
