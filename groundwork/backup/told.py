"""What a backup file says of its backups: the parts of each, their files, and of which blocks these are made."""

from typing import Any

from pydantic import BaseModel, ConfigDict

_BACKUP = "backup "


def of_backup(name: str) -> str:
    """What stands for the id of a store where something comes out of the backup of that name."""
    return f"{_BACKUP}{name}"


def backup_in(store: str) -> str:
    return store.removeprefix(_BACKUP) if store.startswith(_BACKUP) else ""


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class KeptFile(_Told):
    """`size` in bytes; `sha256` and `blocks` in hex: the content is that of its blocks, one after the other."""

    name: str
    size: int
    sha256: str
    blocks: tuple[str, ...]


class Part(_Told):
    """What one service keeps, as it was at an instant (ISO 8601). `about`: figures for people. `store`: its id."""

    part: str
    at: str
    program: str
    store: str = ""
    files: tuple[KeptFile, ...] = ()
    about: dict[str, Any] = {}

    def file(self, name: str) -> KeptFile | None:
        return next((file for file in self.files if file.name == name), None)


class Whole(_Told):
    """Said last of a complete backup. `parts`: the SHA-256 of what was told of each. `left_out`: why a part is
    missing."""

    backup: str
    at: str
    parts: dict[str, str]
    left_out: dict[str, str] = {}
