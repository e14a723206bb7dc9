"""The gateway's store: calls, artifact names, pinned keys, and deliveries to others."""

from importlib.resources import files
from pathlib import Path

from groundwork.sqlite import file

FILE = "ledger.db"
MIGRATIONS = files(__package__) / "sql"


def pending_upgrade(folder: Path) -> str:
    """Describes the migration at the next start; empty for none. Raises Misconfigured for a newer ledger, and
    TryAgain."""
    return file.pending_upgrade(folder / FILE, MIGRATIONS)
