"""What outlives a loss of power."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Returns once the disk has what a file holds, or which names are in a folder. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
