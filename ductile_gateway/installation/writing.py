"""Files written and taken away as a configuration needs it: whole or not at all, with their owners and modes."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

_PRIVATE, _PROGRAM, _FILE, _FOLDER = 0o600, 0o755, 0o644, 0o755


def make(path: Path, content: bytes, *, like: Path, secret: bool, program: bool, among_others: bool) -> None:
    """A file of ours. Its folders are made. Nobody but their owner may write there: else Ductile refuses a plugin.

    `like`: a file whose owner is to have it, where we are root. `among_others`: others may look into its folders.
    Raises OSError.
    """
    for folder in reversed([each for each in path.parents if not each.exists()]):
        folder.mkdir(mode=_FOLDER if among_others else 0o700)
        _give(folder, like)
    _write(path, content, mode=_PRIVATE if secret else _PROGRAM if program else _FILE, like=like)


def change(path: Path, content: bytes) -> None:
    """A file of somebody else's; it stays theirs, also where the path is a link to it. Raises OSError."""
    there = path.resolve()
    _write(there, content, mode=there.stat().st_mode & 0o7777, like=there)


def take_away(path: Path, *, within: Sequence[Path]) -> None:
    """The file, what Python left beside it, and the folders that are empty then, but for those in `within` and what
    they lie in. Raises OSError."""
    path.unlink(missing_ok=True)
    cache = path.parent / "__pycache__"
    for left in cache.glob(f"{path.stem}.*.pyc"):
        left.unlink()
    inside = [folder for folder in path.parents if any(folder != top and folder.is_relative_to(top) for top in within)]
    for folder in (cache, *inside):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _write(path: Path, content: bytes, *, mode: int, like: Path) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _give(beside, like)
        beside.chmod(mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _give(path: Path, like: Path) -> None:
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
