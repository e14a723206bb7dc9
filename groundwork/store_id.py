"""Which store this is: an id in a file of its folder, made once, so that a store is known again wherever it is."""

import secrets
from pathlib import Path

ID_FILE = "store.id"


def store_id(folder: Path) -> str:
    """The id of the store in an existing folder. Raises OSError."""
    file = folder / ID_FILE
    known = file.read_text(encoding="ascii").strip() if file.exists() else ""
    if known:
        return known
    made = f"store_{secrets.token_hex(8)}"
    file.write_text(f"{made}\n", encoding="ascii")
    return made
