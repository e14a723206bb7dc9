"""The gateway's durable memory: one SQLite file for calls, events from outside, and what others are to be told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from ductile_gateway.store.carrying_over import carry_over
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.group_commit import OnCommit, nobody

FILE = "ledger.db"
"""It is called so since it held the calls alone: an earlier version that finds it refuses it as too new, instead of
beginning anew without a memory."""
MOVED = "moved"
"""A file beside it, once what it holds has moved into the stream of several gateways."""


@asynccontextmanager
async def open_store(folder: Path, on_commit: OnCommit = nobody) -> AsyncIterator[SqliteFile]:
    """The file in an existing folder, with what earlier versions have left there. Raises Misconfigured when it cannot
    be used, also where what it held is shared by several now."""
    if (folder / MOVED).exists():
        raise Misconfigured(
            f"the ledger of {folder} is in the stream that several gateways share: set `gateway.store: jetstream`, or "
            "move it back with `ductile-gateway migrate --to sqlite`"
        )
    async with open_file(folder / FILE, files(__package__) / "sql", on_commit) as file:
        await carry_over(file)
        yield file
