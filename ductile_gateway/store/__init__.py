"""The gateway's durable memory: one SQLite file for calls, events from outside, and what others are to be told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from ductile_gateway.store.carrying_over import carry_over
from groundwork.sqlite.file import SqliteFile, open_file

FILE = "ledger.db"
"""It is called so since it held the calls alone: an earlier version that finds it refuses it as too new, instead of
beginning anew without a memory."""


@asynccontextmanager
async def open_store(folder: Path) -> AsyncIterator[SqliteFile]:
    """The file in an existing folder, with what earlier versions have left there. Raises Misconfigured when it cannot
    be used."""
    async with open_file(folder / FILE, files(__package__) / "sql") as file:
        await carry_over(file)
        yield file
