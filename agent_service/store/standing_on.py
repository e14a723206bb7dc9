"""What a shared store stands on, as it sees it: the log that all share, its own copy of it, and who the others are."""

from typing import Protocol

from groundwork.nats.shared_log import Fact


class Log(Protocol):
    """Facts in one order, by the word of whoever leads the log."""

    async def append(self, subject: str, body: bytes, *, after: int | None) -> int:
        """The position of the new fact. `after` is that of the newest of its subject: 0 for none, None for whichever.

        Raises Moved where another is the newest, NoRoom, Misconfigured, and TryAgain where it is not known whether the
        fact was stored: it may still be.
        """

    async def newest(self, subject: str) -> Fact | None: ...

    async def end(self) -> int: ...

    async def purge(self, subject: str, before: int | None = None) -> None:
        """Forget the facts of a subject; or those of it below a position. Raises TryAgain."""


class Copy(Protocol):
    """The facts that this process has written into its database, in the order of the log."""

    @property
    def reached(self) -> int: ...

    async def wait(self, seq: int) -> None:
        """Until the fact at that position is there. Raises TryAgain after a while."""


class Members(Protocol):
    """Those who share the store, of whom this process is one."""

    @property
    def me(self) -> str: ...

    @property
    def live(self) -> frozenset[str]: ...

    def mine(self, owner: str, key: str) -> bool:
        """Whether what is `owner`'s is to be seen to here: ours, or that of one who is gone (empty: of nobody), where
        this member is the heir of `key`."""
