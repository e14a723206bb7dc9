"""What one plugin call leaves on disk, so that it outlives the gateway that started it.

The gateway locks the folder (flock) before it becomes visible, and the call's guard holds the lock until it is gone. So
a free lock says that no guard watches and none ever will from this start, and a missing folder says that nothing was
started. A file of `began`, `unbegun`, `stopped` or `exit` counts only when it ends in a newline.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ductile_gateway.calls.call import AlreadyStarted
from groundwork.service.store_folder import sync
from schemas.values import dataclass

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Changes when the machine restarts; with each call where the system has none: then more calls end as unknown."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class CallFolder:
    """One start of one call. `stdout` and `stderr` are what the plugin wrote; its stdin follows in `request` on a line
    that says what was started. Noted are `began` (the guard's number), `unbegun` (why the program was not run),
    `stopped` (for what) and `exit` (its code)."""

    path: Path

    def exists(self) -> bool:
        return self.path.is_dir()

    def running(self) -> bool:
        """Whether the guard that holds the lock lives, or the gateway that is about to start it."""
        with contextlib.suppress(FileNotFoundError), opened(self.path) as folder:
            try:
                fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def discard(self) -> None:
        gone = self.path.with_name(f".gone-{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(gone)
        with contextlib.suppress(OSError):  # what the plugin itself has written lies elsewhere
            for file in gone.iterdir():
                file.unlink()
            gone.rmdir()

    def written_at(self, name: str) -> datetime | None:
        with contextlib.suppress(FileNotFoundError):
            return datetime.fromtimestamp((self.path / name).stat().st_mtime, UTC)
        return None

    def number(self, name: str) -> int | None:
        digits = self.noted(name)
        return int(digits) if digits.isdigit() else None

    def noted(self, name: str) -> str:
        """The first line; empty where there is none, or it has no end."""
        noted, newline, _ = self.content(name).partition(b"\n")
        return noted.decode(errors="replace") if newline else ""

    def content(self, name: str) -> bytes:
        with contextlib.suppress(FileNotFoundError), open(f"{self.path}/{name}", "rb", 0) as file:  # noqa: PTH123 - quick
            return file.readall()
        return b""


class CallFolders:
    """All calls of one gateway, below `root` on a local disk; one gateway at a time."""

    def __init__(self, root: Path, *, boot_id: str) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = root.resolve()  # a box shows a plugin real paths
        self._boot_id = boot_id
        for path in root.glob(".*-*"):
            # Left by a gateway that died between two steps; its process, if there ever was one, never saw it.
            shutil.rmtree(path, ignore_errors=True)

    def folder(self, key: str) -> CallFolder:
        return CallFolder(self._root / hashlib.sha256(key.encode()).hexdigest()[:40])

    def same_boot(self, folder: CallFolder) -> bool:
        return folder.noted("request") == self._boot_id

    @contextlib.contextmanager
    def publish(self, key: str, request: bytes) -> Iterator[tuple[CallFolder, int]]:
        """The new folder, and its descriptor, which holds its lock. Raises AlreadyStarted, or OSError, and then nothing
        is left of it. Its name is on disk before this returns: after a power cut a missing folder means that nothing
        was started."""
        folder = self.folder(key)
        draft = self._root / f".draft-{uuid.uuid4().hex}"
        draft.mkdir(mode=0o700)
        try:
            (draft / "request").write_bytes(self._boot_id.encode() + b"\n" + request)
            with locked(draft) as lock:
                try:
                    draft.rename(folder.path)
                except OSError:
                    if not folder.exists():
                        raise
                    raise AlreadyStarted(f"the call {key} was started before: it is resumed, not run again") from None
                try:
                    sync(self._root)
                    yield folder, lock
                except OSError:
                    folder.discard()
                    raise
        except (AlreadyStarted, OSError):
            shutil.rmtree(draft, ignore_errors=True)
            raise


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Its descriptor, which holds the lock wherever it is handed to."""
    with opened(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor


def old_folders(root: Path, before: datetime) -> list[CallFolder]:
    """Of calls that ended before and were not asked for since: nothing was noted there later."""
    old = list[CallFolder]()
    for folder in map(CallFolder, root.glob("[!.]*")):
        with contextlib.suppress(FileNotFoundError):
            if folder.path.stat().st_mtime < before.timestamp() and not folder.running():
                old.append(folder)
    return old
