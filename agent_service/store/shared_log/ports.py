"""The ports of a shared store: the log, and a copy of it."""

from typing import Protocol

from groundwork.nats.publishing import StoredMessage


class Log(Protocol):
    """Facts in one order, which the log's leader decides."""

    async def append(self, subject: str, body: bytes, *, after: int | None) -> int:
        """The position of the new fact. `after`: that of the newest of its subject; 0 for none, None for whichever.

        Raises Moved, NoRoom, Misconfigured, and TryAgain where it is not known whether the fact was stored.
        """

    async def newest(self, subject: str) -> StoredMessage | None: ...

    async def end(self) -> int: ...

    async def purge(self, subject: str, before: int | None = None) -> None:
        """Forget a subject's facts, or those below a position. Raises TryAgain."""


class Copy(Protocol):
    """The facts that this process has written into its database, in the order of the log."""

    @property
    def reached(self) -> int: ...

    async def wait(self, seq: int) -> None:
        """Raises TryAgain after a while."""
