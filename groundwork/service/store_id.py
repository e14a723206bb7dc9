"""Which store this is: an id in a file of its folder, made once, so that a store is known again wherever it is."""

import secrets
from pathlib import Path

from groundwork.service import private_file

ID_FILE = "store.id"


def known_id(folder: Path) -> str:
    """The id of the store in a folder; empty if it has none yet. Raises OSError."""
    file = folder / ID_FILE
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


def store_id(folder: Path) -> str:
    """The id of the store in an existing folder, made if it has none yet. Raises OSError."""
    known = known_id(folder)
    if known:
        return known
    made = f"store_{secrets.token_hex(8)}"
    private_file.write(folder / ID_FILE, f"{made}\n")
    return made
