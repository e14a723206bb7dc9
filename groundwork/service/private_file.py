"""Small files for their owner alone, which are there whole or not at all."""

import os
import secrets
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Durable on return, in place of what the file said before; its folder is made if absent. Raises OSError."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
