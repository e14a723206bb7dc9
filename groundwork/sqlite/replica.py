"""A process's copy of a shared log in SQLite: messages applied in order, and the position reached.

It can be rebuilt from the log, so it is not synced to the disk. It starts again if the log is another one, or shorter.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

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


class Replica:
    """The schema has a table `replica (created, reached, at)`. `apply` writes a message in the writer thread, `forget`
    empties the tables, and `applied` is called on the loop, before waiters. None of the three raises."""

    def __init__(self, log: SharedLog, file: SqliteFile, apply: Apply, *, forget: Forget) -> None:
        self._log = log
        self._file = file
        self._apply = apply
        self._forget = forget
        self.applied: Callable[[Sequence[StoredMessage]], object] | None = None
        self.reached = 0
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follows the log; on entry everything is here that is in it now. Raises TryAgain as `wait` does, Misconfigured
        and Broken; also later, in an ExceptionGroup."""
        await self._open()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow())
            await self.wait(await self._log.end())
            yield
            following.cancel()

    async def wait(self, seq: int) -> None:
        """Returns when the message at `seq` is here. Raises TryAgain when nothing has come for PATIENCE_S."""
        while self.reached < seq:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._moved.wait()
            except TimeoutError as error:
                behind = f"this process has copied the facts up to {self.reached}, and not those up to {seq}"
                raise TryAgain(f"{behind}: it is cut off from NATS, or out of room") from error

    async def _open(self) -> None:
        known = await self._file.read("SELECT created, reached, at FROM replica")
        if not known or not await self._is_same_log(*known[0]):
            extent = await patiently(self._log.extent)
            await self._file.write(partial(self._begin_anew, extent))
        ((self.reached,),) = await self._file.read("SELECT reached FROM replica")

    async def _is_same_log(self, created: str, reached: int, at: str) -> bool:
        """True if the copy is of this log. A log restored from a backup has the same name and age, so the newest copied
        message is compared."""
        extent = await patiently(partial(self._log.extent, reached))
        if extent.created != created or reached > extent.last_seq:
            return False
        return extent.stored_at is None or abs(extent.stored_at - datetime.fromisoformat(at)) < SAME_INSTANT

    async def _follow(self) -> None:
        async with aclosing(self._log.follow(self.reached)) as followed:
            async for batch in followed:
                # on a full disk, until there is room
                await patiently(partial(self._file.write, partial(self._write, batch)))
                if self.applied:
                    self.applied(batch.messages)
                self.reached = batch.last_seq
                self._moved.set()
                self._moved = asyncio.Event()

    def _begin_anew(self, extent: Extent, connection: sqlite3.Connection) -> None:
        self._forget(connection)
        connection.execute("DELETE FROM replica")
        connection.execute("INSERT INTO replica (created, reached, at) VALUES (?, 0, '')", (extent.created,))

    def _write(self, batch: Batch, connection: sqlite3.Connection) -> None:
        for fact in batch.messages:
            self._apply(connection, fact)
        connection.execute("UPDATE replica SET reached = ?, at = ?", (batch.last_seq, batch.at.isoformat()))
