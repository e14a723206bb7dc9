"""What a shared store stands on: the log, and this process's index of it."""

from collections.abc import Mapping
from typing import Protocol

from groundwork.nats.publishing import StoredMessage
from groundwork.nats.shared_log import Extent


class Log(Protocol):
    """Facts in one order, which the log's leader decides."""

    async def append(
        self, subject: str, body: bytes, *, after: int | None, headers: Mapping[str, str] = ..., among: str = ...
    ) -> int:
        """The position of the new fact. `after`: that of the newest of its subject, or of the pattern `among`; 0 for
        none, None for whichever. Raises Moved, NoRoom, Misconfigured, and TryAgain where it is not known whether the
        fact was stored."""

    async def newest(self, subject: str) -> StoredMessage | None:
        """Of a subject, or of a pattern."""

    async def read(self, subject: str, after: int, most: int = ...) -> list[StoredMessage]:
        """In order, from a server that may be behind."""

    async def end(self) -> int: ...

    async def extent(self) -> Extent: ...

    async def purge(self, subject: str) -> None: ...


class Index(Protocol):
    """The facts that this process has written into its database, in the order of the log."""

    @property
    def reached(self) -> int: ...

    async def wait(self, seq: int) -> None:
        """Raises TryAgain after a while."""
