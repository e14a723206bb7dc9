"""Messages between the gateway and the guard of a plugin: the order for its calls, each call, and its record.

A record holds named contents, one after another, each as `NAME LENGTH`, a newline, the content and a newline. A guard
appends; what a crash cuts short does not count. Contents: `request`, `began` (the guard's process id and the time),
`stdout` and `stderr` (in pieces), `unbegun` (the reason why the program was not run), `stopped` (the reason why it was
ended) and `exit` (its exit code, as a shell reports it, and the time). Times are seconds since 1970.
"""

import json
import os
import struct
import time
from typing import NamedTuple

LENGTH = struct.Struct("!I")
"""The length of an order that follows as JSON. Comes with the guard's end of its line, and the lock of its place."""
CALL = struct.Struct("!d40s")
"""The deadline by the monotonic clock, which all processes share, and the name of the call. Comes with the descriptor
of its record, which is the lock."""
FREE = b"."
IDLE_S = 30.0
"""A guard that waits longer for a call ends."""

MB = 1024 * 1024


class ProcessLimits(NamedTuple):
    """Limits of one call besides its deadline. `grace_s`: time between SIGTERM and SIGKILL."""

    cpu_s: float = 300
    memory_mb: int = 1024
    file_mb: int = 256
    """For each file, and for all files of the call together, also those in memory and those without a name."""
    processes: int = 128
    open_files: int = 256
    output_mb: float = 10
    grace_s: float = 5

    @property
    def output_bytes(self) -> int:
        return int(self.output_mb * MB)


OWN = ("work", "tmp")
"""Folders in a guard's place, empty when a call begins: the working directory and TMPDIR."""
MARK = "AGENTIC_CALL"
"""Environment variable that identifies the processes of a call after its guard was killed: 40 characters."""


class User(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Order(NamedTuple):
    """Paths are absolute. `place`: the guard's folder, which holds those of `OWN`. `python`: our own Python runs the
    entrypoint. `landlock`: only `read` and `write` are within reach. `view`: `closed` is hidden, and only `write`
    without `frozen` can be changed."""

    entrypoint: str
    environment: dict[str, str]
    place: str = ""
    python: bool = False
    limits: ProcessLimits = ProcessLimits()
    landlock: bool = False
    view: bool = False
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    user: User | None = None

    @property
    def own(self) -> tuple[str, ...]:
        return tuple(f"{self.place}/{name}" for name in OWN)

    def to_json(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def of_json(cls, content: bytes) -> "Order":
        raw = json.loads(content)
        return cls(
            **raw | {"limits": ProcessLimits(*raw["limits"]), "user": User(*raw["user"]) if raw["user"] else None}
        )


def append(record: int, name: str, content: bytes) -> None:
    """Raises OSError, also where only a part could be written."""
    entry = b"%s %d\n%s\n" % (name.encode(), len(content), content)
    if os.write(record, entry) < len(entry):
        raise OSError(f"the {name} of a call could not be written in full: the disk is full")


def append_timed(record: int, name: str, number: int) -> None:
    append(record, name, b"%d %f" % (number, time.time()))


def contents(record: bytes) -> dict[str, bytes]:
    """Contents by name, with the pieces joined, up to the first entry that is not whole."""
    pieces: dict[str, list[bytes]] = {}
    at = 0
    while (header := record.find(b"\n", at, at + 32)) >= 0:
        name, _, length = record[at:header].partition(b" ")
        end = header + 1 + int(length) if length.isdigit() else len(record)
        if record[end : end + 1] != b"\n":
            break
        pieces.setdefault(name.decode(errors="replace"), []).append(record[header + 1 : end])
        at = end + 1
    return {name: b"".join(found) for name, found in pieces.items()}
