"""The keys by which a backup proves itself: those of the machine, or those that it brings along."""

from pathlib import Path

from groundwork.backup.archive import Archive
from groundwork.backup.told import Part
from groundwork.service import private_file
from groundwork.service.errors import Misconfigured
from groundwork.service.key_ring import KeyRing

KEYS = "keys"
"""The file with the keys of a service, as it is called in its part of a backup."""


def ring_for(path: Path, archive: Archive, part: Part, *, new_keys: bool) -> KeyRing | None:
    """The keys in the file `path`, which is made where the backup has them; None where there are none, and `new_keys`
    are wanted. Raises Misconfigured."""
    if not path.exists() and (kept := part.file(KEYS)):
        private_file.write(path, b"".join(archive.content(kept)).decode())
    if path.exists():
        return KeyRing.open(path)
    if new_keys:
        return None
    with_keys = (name for name in archive.having(part.part) if _has_keys(archive.unproved(name, part.part)))
    other = next((f"restore {name}, which holds keys, with --backup; " for name in with_keys), "")
    raise Misconfigured(
        f"there is no file {path}, and the backup holds no keys: without them nothing of it can be told from forged. "
        f"Put the file back from where you keep it; {other}or, if it is lost, take the backup as it is with --new-keys"
    )


def _has_keys(part: Part | None) -> bool:
    return part is not None and part.file(KEYS) is not None
