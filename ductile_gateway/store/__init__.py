"""The gateway's durable memory: one SQLite file for calls, events from outside, and what others are to be told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from groundwork.service.errors import Misconfigured
from groundwork.sqlite import migrations
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.group_commit import OnCommit, nobody

FILE = "ledger.db"
MOVED = "moved"
"""A file beside it, once it was backed up to be moved."""
MIGRATIONS = files(__package__) / "sql"


def ahead(folder: Path) -> str:
    """What the next start will do to an older ledger; empty for nothing. Raises Misconfigured for a newer one, and
    TryAgain."""
    return migrations.ahead(folder / FILE, MIGRATIONS)


@asynccontextmanager
async def open_store(folder: Path, on_commit: OnCommit = nobody) -> AsyncIterator[SqliteFile]:
    """The file in an existing folder. Raises Misconfigured, also where its content was moved."""
    if (folder / MOVED).exists():
        raise Misconfigured(
            f"the ledger of {folder} was backed up to be moved: set gateway.store to where it was restored; or, if it "
            f"was restored nowhere, delete {folder / MOVED}"
        )
    async with open_file(folder / FILE, MIGRATIONS, on_commit) as file:
        yield file
