"""The descendants of a process, read from /proc: found, measured and ended. On Linux only."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple

TICKS = "SC_CLK_TCK"
ENDED = "ZX"
IN_MEMORY = "/memfd:"
PAUSE_S = 0.002
PROC = os.open("/proc", os.O_RDONLY | os.O_CLOEXEC) if os.path.isdir("/proc") else -1
"""Opened before a view hides processes."""


class Process(NamedTuple):
    """A line of /proc/PID/stat. `cpu_ticks` include children that have ended; `memory`: resident pages."""

    pid: int
    parent: int
    state: str
    cpu_ticks: int
    threads: int
    memory: int


class TreeUsage(NamedTuple):
    """`nameless_bytes`: of files in memory, and of those of the call that are open and have lost their names."""

    tasks: int
    cpu_s: float
    memory_bytes: int
    nameless_bytes: int


class Tree:
    """The processes below `root`, which write to the folder `place`. Those of others are read only once."""

    def __init__(self, root: int, place: str) -> None:
        self._root = root
        self._ours = (f"{place}/", IN_MEMORY)
        self._foreign: set[int] = set()
        self._reaped_s = _reaped_s()

    def measure(self) -> TreeUsage:
        """Usage of all descendants, including those that `root` has reaped since this was made."""
        running = set(_numbers())
        self._foreign &= running
        found = {pid: one for pid in running - self._foreign - {self._root} if (one := _read(pid))}
        descendants = _below(self._root, found)
        # A process whose parent ended before it could be read may be ours: read it again.
        known = found.keys() | self._foreign | {0}
        self._foreign |= {pid for pid, one in found.items() if one.parent in known} - {one.pid for one in descendants}
        ticks = sum(one.cpu_ticks for one in descendants) / os.sysconf(TICKS)
        nameless = dict(chain.from_iterable(self._nameless(one.pid) for one in descendants))
        return TreeUsage(
            tasks=sum(one.threads for one in descendants),
            cpu_s=ticks + _reaped_s() - self._reaped_s,
            memory_bytes=sum(one.memory for one in descendants) * resource.getpagesize(),
            nameless_bytes=sum(nameless.values()),
        )

    def _nameless(self, pid: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Device and inode of each such file, and its size in bytes."""
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
            for each in descriptors:
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    found = each.stat()
                    if found.st_nlink == 0 and os.readlink(each).startswith(self._ours):
                        yield (found.st_dev, found.st_ino), found.st_blocks * 512


def _reaped_s() -> float:
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return reaped.ru_utime + reaped.ru_stime


def end_all_below(root: int, *, but: Collection[int] = ()) -> bool:
    """Kills all descendants except those in `but` and below; returns True if there were any. Stops them first: else a
    new child escapes."""
    stopped: set[int] = set()
    while new := _living_below(root, but) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new
    _signal(stopped, signal.SIGKILL)
    return bool(stopped)


def end_marked(mark: bytes, *, within_s: float) -> None:
    """Kills processes with `mark` in their environment, until none is left."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and (marked := {pid for pid in _numbers() if mark in _content(pid, "environ")}):
        _signal(marked, signal.SIGKILL)
        time.sleep(PAUSE_S)


def tasks_of(user: int) -> int:
    return sum(one.threads for pid in _numbers() if _owner(pid) == user and (one := _read(pid)))


def _living_below(root: int, but: Collection[int]) -> set[int]:
    found = {pid: one for pid in _numbers() if pid not in but and (one := _read(pid))}
    return {one.pid for one in _below(root, found) if one.state not in ENDED}


def _below(root: int, found: dict[int, Process]) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for one in found.values():
        children.setdefault(one.parent, []).append(one)
    below: list[Process] = []
    waiting = [root]
    while waiting:
        these = children.pop(waiting.pop(), [])
        below += these
        waiting += [one.pid for one in these]
    return below


def _numbers() -> Iterator[int]:
    if PROC >= 0:
        listing = os.open(".", os.O_RDONLY, dir_fd=PROC)  # forks share a descriptor's place in the list
        names = os.listdir(listing)
        os.close(listing)
        yield from (int(name) for name in names if name.isdigit())


def _read(pid: int) -> Process | None:
    line = _content(pid, "stat")
    # The name is in parentheses and may contain any character: parse what follows the last one.
    fields = line[line.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    user, system, children_user, children_system = map(int, fields[11:15])
    return Process(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0].decode(),
        cpu_ticks=user + system + children_user + children_system,
        threads=int(fields[17]),
        memory=int(fields[21]),
    )


def _content(pid: int, name: str) -> bytes:
    try:
        with open(os.open(f"{pid}/{name}", os.O_RDONLY, dir_fd=PROC), "rb") as file:
            return file.read()
    except OSError:
        return b""


def _owner(pid: int) -> int | None:
    try:
        return os.stat(str(pid), dir_fd=PROC).st_uid
    except OSError:
        return None


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
