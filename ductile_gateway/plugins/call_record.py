"""The record that one plugin call leaves on disk, so that it outlives the gateway that started it.

The gateway locks the record (flock) and hands it to the call's guard, which holds the lock until nothing of the call
lives. So a free lock means that no guard watches the call, and none ever will from this start. A missing record means
that nothing was started. A power cut may cut a record short, so records lie in one folder per boot of the machine: a
missing entry proves that nothing was done only in the folder of this boot, and in a record that has its request.
"""

import contextlib
import fcntl
import hashlib
import os
import uuid
from collections.abc import Container, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from ductile_gateway.calls.call import AlreadyStarted
from ductile_gateway.plugins.box.order import append, contents
from groundwork.service.store_folder import sync
from schemas.values import dataclass

QUIETLY = getattr(os, "O_NOATIME", 0)
"""A read that updates the time of access waits for the disk."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    path: Path
    same_boot: bool = True

    def size(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self.path.stat().st_size
        return 0

    def read(self) -> Mapping[str, bytes]:
        """Contents by name; none where the record cannot be read."""
        with contextlib.suppress(OSError), os.fdopen(os.open(self.path, os.O_RDONLY | QUIETLY), "rb") as record:
            return contents(record.read())
        return {}

    def guard(self) -> int | None:
        """Process id of the guard, once it has begun."""
        began = self.read().get("began")
        return int(began.split()[0]) if began else None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()


class CallRecords:
    """Records of all calls of one gateway, below `root` on a local disk; one gateway at a time."""

    def __init__(self, root: Path, *, boot_id: str) -> None:
        own = root / boot_id
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(root)
        self._own = own.resolve()  # a box shows a plugin real paths
        earlier = [folder for folder in self._own.parent.iterdir() if folder != self._own]
        for folder in earlier:
            with contextlib.suppress(OSError):  # it still has records
                folder.rmdir()
        self._earlier = list(filter(Path.is_dir, earlier))

    def of(self, key: str) -> CallRecord:
        name = record_name(key)
        for folder in self._earlier:
            if os.path.exists(f"{folder}/{name}"):  # noqa: PTH110 - quick
                return CallRecord(folder / name, same_boot=False)
        return CallRecord(self._own / name)

    @contextlib.contextmanager
    def create(self, key: str, request: bytes, *, durable: bool = True) -> Iterator[tuple[CallRecord, int]]:
        """Yields the new record and its descriptor, which holds the lock wherever it is handed to. Raises
        AlreadyStarted, or OSError, after which no record is left. `durable`: its name is on disk before this yields;
        else a power cut may lose the record, and the call is run again."""
        record = self.of(key)
        started = AlreadyStarted(f"the call {key} was started before: it is resumed, not run again")
        if not record.same_boot:
            raise started
        descriptor = self._new(record.path, request, started)
        try:
            if durable:
                sync(self._own)
            yield record, descriptor
        except OSError:
            record.discard()
            raise
        finally:
            os.close(descriptor)

    def _new(self, path: Path, request: bytes, started: AlreadyStarted) -> int:
        """A locked record that gets its name once its request is in it: a kill never leaves one without, a power cut
        may."""
        draft = f"{self._own}/.{uuid.uuid4().hex}"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            append(descriptor, "request", request)
            os.link(draft, path)
        except OSError as error:
            os.close(descriptor)
            raise started if isinstance(error, FileExistsError) else error from None
        finally:
            os.unlink(draft)  # noqa: PTH108 - quick
        return descriptor


def record_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def is_locked(path: Path) -> bool:
    """True of a record while its guard lives, or the gateway that is about to start one."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def expired_records(root: Path, before: datetime, *, but: Container[str]) -> list[CallRecord]:
    """Records of calls that ended before, except those with the names in `but`."""
    expired = list[CallRecord]()
    for record in map(CallRecord, root.glob("*/*")):
        with contextlib.suppress(FileNotFoundError):
            is_old = record.path.stat().st_mtime < before.timestamp()
            if is_old and record.path.name not in but and not is_locked(record.path):
                expired.append(record)
    return expired
