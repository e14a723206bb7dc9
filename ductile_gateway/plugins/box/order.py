"""How calls of one plugin are run, with what each may use: handed to the process that starts guards, as JSON."""

import json
import resource
from typing import NamedTuple

MB = 1024 * 1024
SPARE_TASKS = 512
"""By so many the kernel's own limit of processes lies higher: it counts all of the user's, and only stops a flood."""


class ProcessLimits(NamedTuple):
    """The time by the clock is the call's own deadline. `grace_s`: between SIGTERM and SIGKILL."""

    cpu_s: float = 300
    memory_mb: int = 1024
    file_mb: int = 256
    """Of a file, and of all that is in the call's folder."""
    processes: int = 128
    open_files: int = 256
    output_mb: float = 10
    grace_s: float = 5

    @property
    def output_bytes(self) -> int:
        return int(self.output_mb * MB)


KernelLimits = list[tuple[int, tuple[int, int]]]


def kernel_limits(limits: ProcessLimits, tasks: int) -> KernelLimits:
    """Those that the kernel keeps for a process and all below it; the guard watches the others. `tasks`: how many the
    user has already."""
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


def apply_limits(kernel_limits: KernelLimits) -> None:
    for kind, pair in kernel_limits:
        resource.setrlimit(kind, pair)


def _below_ceiling(kind: int, pair: tuple[int, int]) -> tuple[int, int]:
    ceiling = resource.getrlimit(kind)[1]
    return pair if ceiling == resource.RLIM_INFINITY else (min(pair[0], ceiling), min(pair[1], ceiling))


OWN = ("work", "tmp")
"""Folders in the place of a guard, empty when a call begins: where it is, and TMPDIR."""
MARK = "AGENTIC_CALL"
"""The variable by which the processes of a call are known if their guard was killed: 40 characters."""


class User(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Order(NamedTuple):
    """Paths are absolute. `place`: where one guard lets its calls write, with the folders of `OWN`. `python`: the
    entrypoint is a program of this Python. `landlock`: files end at `read` and `write`. `view`: `closed` is hidden, and
    only `write` without `frozen` can be changed."""

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
        """Its tuples are lists by then."""
        raw = json.loads(content)
        return cls(
            **raw | {"limits": ProcessLimits(*raw["limits"]), "user": User(*raw["user"]) if raw["user"] else None}
        )
