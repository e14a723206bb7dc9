"""Opens the rows: the local database, or the stream that several gateways share, with a local copy; and the mark that
says whether gateways may start on them.

    coming ─▶ here ─▶ left

A copy that is a day old is made anew, because the stream no longer has the deletions.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from ductile_gateway.store import FILE, MIGRATIONS
from ductile_gateway.store.rows import FileCarrier, Rows, StreamCarrier, copy
from groundwork.nats.link import NatsLink
from groundwork.nats.shared_log import SharedLog
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import open_file
from groundwork.sqlite.replica import Replica, open_copy
from schemas import subjects
from schemas.values import dataclass

COPY = "ledger-copy.db"
KEPT_S = 86400.0
"""At most the shortest retention."""
ANEW = f"make the stream anew: `nats stream rm {subjects.STREAM_LEDGER}`, then `agentic setup --shared`"
BACKUP = "backup "
"""Stands before the name of a backup, where the owner of a restored row is told."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Mark:
    """`state`: coming, here or left. For a restored ledger: the `backup`, when it was `taken`, and until when the old
    gateway may have worked (`at`). `moved`: a person says that nothing was done after the backup."""

    state: str = "here"
    backup: str = ""
    taken: datetime = _EPOCH
    at: datetime = _EPOCH
    moved: bool = False
    body: bytes = b""

    def check(self, place: str) -> None:
        """Raises Misconfigured if no gateway may start."""
        if self.state == "left":
            raise Misconfigured(
                f"the ledger of {place} was backed up to be moved: set gateway.store to where it was restored; or, if "
                "it was restored nowhere, run `ductile-gateway backup --leave FILE` again, and restore that"
            )
        self.check_complete(place)

    def check_complete(self, place: str) -> None:
        if self.state == "coming":
            raise Misconfigured(
                f"the ledger of {place} is being restored, and that was not finished: run `ductile-gateway restore "
                f"FILE --backup {self.backup}` again"
            )


async def mark_of(rows: Rows) -> Mark:
    return await rows.read(Mark) or Mark()


async def put_mark(rows: Rows, mark: Mark, *, before: Mark) -> None:
    """Replaces the mark `before`. Raises Misconfigured if it has changed meanwhile."""

    def instead(there: Mark | None) -> Mark:
        found = there or Mark()
        if found not in (mark, before):
            raise Misconfigured(f"another command moves the ledger: it is {found.state} now. Try again once it ended")
        return mark

    await rows.change(Mark, instead)


@asynccontextmanager
async def open_alone(folder: Path) -> AsyncIterator[Rows]:
    """Opens the file in an existing folder. Raises Misconfigured, also if its content was moved."""
    async with open_file(folder / FILE, MIGRATIONS) as file:
        rows = Rows(FileCarrier(file))
        (await mark_of(rows)).check(str(folder))
        yield rows


@asynccontextmanager
async def open_shared(folder: Path, link: NatsLink, me: str) -> AsyncIterator[Rows]:
    """Opens the stream, once the copy is complete. The folder is of one process. Raises Misconfigured if there is no
    stream; also later, in an ExceptionGroup."""
    log = log_of_gateways(link)
    (await mark_of(Rows(StreamCarrier(log)))).check(subjects.STREAM_LEDGER)
    async with kept_copy(log, folder, me=me) as rows:
        yield rows


def log_of_gateways(link: NatsLink) -> SharedLog:
    return SharedLog(link, subjects.STREAM_LEDGER, root=subjects.LEDGER)


@asynccontextmanager
async def kept_copy(log: SharedLog, folder: Path, *, me: str = "") -> AsyncIterator[Rows]:
    """Continues the copy in this folder, which is complete on entry. Raises as `open_shared`."""
    async with open_copy(folder / COPY, MIGRATIONS, kept_s=KEPT_S) as copied:
        replica = Replica(log, copied, copy, forget=lambda connection: connection.execute("DELETE FROM rows"))
        async with replica.following():
            yield Rows(StreamCarrier(log, copied, replica.wait), by=me)
