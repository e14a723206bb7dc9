"""A process's copy of a shared log in SQLite: messages applied in order, and the position reached.

It can be rebuilt from the log, so it is not synced to the disk. It starts again if the log is another one, or shorter.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from importlib.resources.abc import Traversable
from math import inf
from pathlib import Path

from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Batch, Extent, SharedLog
from groundwork.service.errors import Misconfigured, TryAgain, causes, patiently
from groundwork.service.machine import set_within, utc_now
from groundwork.sqlite.errors import is_damage
from groundwork.sqlite.file import SqliteFile, open_file

PATIENCE_S = 10.0
GATHER_S = 0.05
"""Pause after messages were applied, unless more are waited for: what comes meanwhile is one transaction."""

SAME_INSTANT = timedelta(milliseconds=1)
"""Difference between two instants of one message, which the server rounds in two ways."""

_KNOWN = "SELECT created, reached, at FROM replica"

log = logging.getLogger(__name__)

Apply = Callable[[sqlite3.Connection, StoredMessage], None]
Forget = Callable[[sqlite3.Connection], object]


@asynccontextmanager
async def open_copy(path: Path, migrations: Traversable, *, kept_s: float = inf) -> AsyncIterator[SqliteFile]:
    """Opens the file of a copy. It is made anew if it is damaged, as by a power loss, or was not written for `kept_s`.
    Raises as `open_file`, and TryAgain for damage that is found later: then the copy is gone."""
    files = [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm")]
    written_at = max((file.stat().st_mtime for file in files if file.exists()), default=inf)
    if utc_now().timestamp() - written_at > kept_s:
        _remove(files)
    try:
        async with AsyncExitStack() as opened:
            try:
                copied = await opened.enter_async_context(open_file(path, migrations, durable=False))
            except Misconfigured as error:
                log.warning("a copy is made anew", extra={"why": str(error)})
                _remove(files)
                copied = await opened.enter_async_context(open_file(path, migrations, durable=False))
            yield copied
    except Exception as error:
        if not (damage := [cause for cause in causes(error) if is_damage(cause.__cause__)]):
            raise
        _remove(files)
        raise TryAgain(f"a copy is made anew: {damage[0]}") from error


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


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
        self._created = self._at = ""
        self._moved, self._hurry = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follows the log; on entry everything is here that is in it now. Raises TryAgain as `wait` does, Misconfigured
        and Broken; also later, in an ExceptionGroup, and TryAgain then for a log that was set back."""
        await self._open()
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow())
            await self.wait(await self._log.end())
            yield
            following.cancel()

    async def wait(self, seq: int) -> None:
        """Returns when the message at `seq` is here. Raises TryAgain when nothing has come for PATIENCE_S."""
        while self.reached < seq:
            self._hurry.set()
            if not await set_within(self._moved, PATIENCE_S):
                behind = f"this process has copied the facts up to {self.reached}, and not those up to {seq}"
                raise TryAgain(f"{behind}: it is cut off from NATS, or out of room")

    async def _open(self) -> None:
        known, extent = await self._file.read(_KNOWN), await patiently(self._log.extent)
        if known:
            self._created, self.reached, self._at = known[0]
        if not known or self._created != extent.created or await self._is_set_back(extent):
            await self._file.write(partial(self._begin_anew, extent))
            self._created, self.reached = extent.created, 0

    async def _is_set_back(self, extent: Extent) -> bool:
        """True if the newest copied message is not in the log. One restored from a backup has the same name and age."""
        stored_at = await patiently(partial(self._log.stored_at, self.reached)) if self.reached else None
        is_another = stored_at is not None and abs(stored_at - datetime.fromisoformat(self._at)) >= SAME_INSTANT
        if is_another or self.reached > extent.last_seq:
            log.warning("the log was set back", extra={"copied": self.reached, "ends": extent.last_seq})
            return True
        return False

    async def _follow(self) -> None:
        async with aclosing(self._log.follow(self.reached)) as followed:
            async for batch in followed:
                if batch.resumed:
                    await self._require_same_log()
                    continue
                # on a full disk, until there is room
                await patiently(partial(self._file.write, partial(self._write, batch)))
                if self.applied:
                    self.applied(batch.messages)
                self.reached, self._at = batch.last_seq, batch.at.isoformat()
                self._moved.set()
                self._moved = asyncio.Event()
                self._hurry.clear()  # one who waits for more sets it again
                await set_within(self._hurry, GATHER_S)

    async def _require_same_log(self) -> None:
        extent = await patiently(self._log.extent)
        if extent.created != self._created:
            raise Misconfigured(f"the stream {self._log.stream} is another one than before: start again")
        if await self._is_set_back(extent):
            raise TryAgain(
                f"the stream {self._log.stream} was restored to an earlier state, or lost its newest messages"
            )

    def _begin_anew(self, extent: Extent, connection: sqlite3.Connection) -> None:
        self._forget(connection)
        connection.execute("DELETE FROM replica")
        connection.execute("INSERT INTO replica (created, reached, at) VALUES (?, 0, '')", (extent.created,))

    def _write(self, batch: Batch, connection: sqlite3.Connection) -> None:
        for fact in batch.messages:
            self._apply(connection, fact)
        connection.execute("UPDATE replica SET reached = ?, at = ?", (batch.last_seq, batch.at.isoformat()))
