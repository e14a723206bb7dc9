"""Files and folders for their owner alone; small files are there whole or not at all.

What root writes belongs to whoever the folder does: a command that root types leaves a service's files to the service.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Durable on return, in place of what the file said before; its folder is made if absent. Raises OSError."""
    _written_beside(path, text).replace(path)


def create(path: Path, text: str) -> bool:
    """The same, unless there is such a file: of several processes at the same time one makes it, and is told so.
    Raises OSError."""
    beside = _written_beside(path, text)
    try:
        path.hardlink_to(beside)
    except FileExistsError:
        return False
    finally:
        beside.unlink()
    return True


def _written_beside(path: Path, text: str) -> Path:
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        left_to_owner(beside)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return beside


def folder_of_ours(folder: Path) -> None:
    """The folder, made if absent, is nobody else's, also where it was there before. Raises OSError."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(made):
        left_to_owner(each)
    _take_from_others(folder)


def closed(folder: Path) -> None:
    """The same, and the files that lie in it. Raises OSError."""
    folder_of_ours(folder)
    for entry in folder.iterdir():
        if entry.is_file() and not entry.is_symlink():
            with suppress(FileNotFoundError):
                _take_from_others(entry)


def left_to_owner(path: Path) -> None:
    """A file or folder that root has made is given to whoever its folder belongs to. Raises OSError."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def _take_from_others(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(mode) & stat.S_IRWXU)
