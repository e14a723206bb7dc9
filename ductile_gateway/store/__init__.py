"""The gateway's store: calls, artifact names, pinned keys, and deliveries to others."""

from importlib.resources import files

FILE = "ledger.db"
MIGRATIONS = files(__package__) / "sql"
