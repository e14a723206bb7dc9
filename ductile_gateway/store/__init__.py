"""The gateway's durable memory: one SQLite file for calls, and what others are to be told."""

from importlib.resources import files
from pathlib import Path

from groundwork.sqlite.file import ahead as file_ahead

FILE = "ledger.db"
MIGRATIONS = files(__package__) / "sql"


def ahead(folder: Path) -> str:
    """What the next start will do to an older ledger; empty for nothing. Raises Misconfigured for a newer one, and
    TryAgain."""
    return file_ahead(folder / FILE, MIGRATIONS)
