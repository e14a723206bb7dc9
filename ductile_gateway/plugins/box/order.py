"""The order to run calls of one plugin, with their limits; sent to the guardhouse as JSON."""

import json
import resource
from typing import NamedTuple

MB = 1024 * 1024
SPARE_TASKS = 512
"""Margin of the kernel's limit of processes, which counts all of the user's: it only stops a flood."""


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


def kernel_limits(limits: ProcessLimits, tasks: int) -> list[tuple[int, tuple[int, int]]]:
    """Limits that the kernel enforces; the guard watches the others. `tasks`: number of tasks the user has already."""
    seconds = max(1, round(limits.cpu_s))
    wanted = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_DATA: (limits.memory_mb * MB,) * 2,
        resource.RLIMIT_FSIZE: (limits.file_mb * MB,) * 2,
        resource.RLIMIT_NPROC: (tasks + limits.processes + SPARE_TASKS,) * 2,
        resource.RLIMIT_NOFILE: (limits.open_files,) * 2,
        resource.RLIMIT_CORE: (0, 0),
    }
    return [(kind, _below_ceiling(kind, pair)) for kind, pair in wanted.items()]


def _below_ceiling(kind: int, pair: tuple[int, int]) -> tuple[int, int]:
    ceiling = resource.getrlimit(kind)[1]
    return pair if ceiling == resource.RLIM_INFINITY else (min(pair[0], ceiling), min(pair[1], ceiling))


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
