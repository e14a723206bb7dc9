"""The agent's database `runs.db`, its schema in migrations/, and SQL statements by name (`-- name: x`) from files."""

import re
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.resources import files
from pathlib import Path

from groundwork.service.errors import Misconfigured
from groundwork.sqlite import file
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.reserve import DiskReserve

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load_queries() -> dict[str, str]:
    text = (files(__package__) / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


FILE = "runs.db"
MIGRATIONS = files(__package__) / "migrations"


def open_database(
    folder: Path, *, durable: bool = True, reserve: bool = False
) -> AbstractAsyncContextManager[SqliteFile]:
    """Opens the database in `folder`, made if absent. Not `durable`: a copy. Raises Misconfigured, TryAgain."""
    path = folder / FILE
    return file.open_file(path, MIGRATIONS, durable=durable, reserve=DiskReserve(path) if reserve else None)


def open_for_reading(folder: Path) -> AbstractAsyncContextManager[SqliteFile]:
    """Opens it read-only, also while another process writes. Raises Misconfigured unless one of this version exists."""
    path = folder / FILE
    if not path.is_file():
        raise Misconfigured(f"there is no database {path}: name the configuration of the agent that wrote it")
    return file.open_for_reading(path, MIGRATIONS)
