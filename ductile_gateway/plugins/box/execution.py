"""The child process of a guard that gives up its privileges step by step, and then executes the plugin.

The order matters: session, limits, user, privileges, paths. The guard prepares what all calls of a plugin share: the
view, which it enters itself, and the landlock ruleset. The numbers are those of linux/prctl.h and linux/capability.h.
"""

import ctypes
import gc
import os
import resource
import signal
import sys
from typing import NoReturn

from ductile_gateway.plugins.box import boundaries
from ductile_gateway.plugins.box.order import MARK, MB, Order, ProcessLimits, append
from ductile_gateway.plugins.box.tree import tasks_of
from groundwork.service import process

CANNOT_RUN = 126
MOST_BYTES = 1000
SPARE_TASKS = 512
"""Margin of the kernel's limit of processes, which counts all of the user's: it only stops a flood."""
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION_3 = 0x20080522
MOST_CAPABILITIES = 64
NICER_BY = 5
"""The services go first when a plugin and they compete for the processor."""


class PreparedBox:
    """The box of one plugin, ready for calls. `flaw`: the reason why it cannot be used."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.flaw = ""
        self.ruleset: int | None = None
        tasks = tasks_of(order.user.uid if order.user else os.getuid())
        self.kernel_limits = _kernel_limits(order.limits, tasks)
        self.program = None
        if order.python:
            from ductile_gateway.plugins.box.program import Program  # the guards of other programs do not need it

            self.program = Program(order.entrypoint)
        else:
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
        try:
            self._close()
        except OSError as error:
            self.flaw = f"{order.entrypoint}: {error}"[:MOST_BYTES]
        gc.collect()
        gc.freeze()  # else a collection in a fork copies all memory

    def _close(self) -> None:
        order, write = self.order, (*self.order.write, *self.order.own)
        if order.view:
            room_mb, closed = order.limits.file_mb, order.closed
            boundaries.enter_view(read=order.read, write=write, frozen=order.frozen, closed=closed, room_mb=room_mb)
            process.hide_memory()
            self._temporary = _used()
        _drop_bounding_set()
        if order.landlock:
            self.ruleset = boundaries.prepare_landlock(
                order.read, (*write, *(boundaries.TEMPORARY if order.view else ()))
            )
        elif order.view and boundaries.landlock_abi():
            self.ruleset = boundaries.prepare_landlock_for_processes()

    def is_as_made(self) -> bool:
        """True if no call has left anything in the temporary folders of the view, or in shared memory."""
        return not self.order.view or _used() == self._temporary


def _kernel_limits(limits: ProcessLimits, tasks: int) -> list[tuple[int, tuple[int, int]]]:
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


def _used() -> tuple[int, int, int]:
    used = os.statvfs(os.path.realpath(boundaries.TEMPORARY[0]))
    return used.f_files - used.f_ffree, used.f_blocks - used.f_bfree, boundaries.shared_memory()


def execute(box: PreparedBox, name: str, streams: tuple[int, int, int], record: int, *, guard: int) -> NoReturn:
    """Never returns. `streams`: stdin, stdout and stderr. An error goes to the `record`. `guard`: the parent."""
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        _enter(box, record, guard)
        order = box.order
        own = {MARK: name, "TMPDIR": order.own[1]}
        if box.program:
            os.close(record)
            process.show_memory()
            box.program.run(own)
        os.execve(order.entrypoint, [order.entrypoint], order.environment | own)  # noqa: S606 - no shell is meant
    except BaseException as error:  # noqa: BLE001 - nothing of ours may go on in this process
        append(record, "unbegun", f"{box.order.entrypoint}: {error}"[:MOST_BYTES].encode(errors="replace"))
    finally:
        os._exit(CANNOT_RUN)


def _enter(box: PreparedBox, record: int, guard: int) -> None:
    os.setsid()
    if box.program:  # else the start of the program does it
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
    os.nice(NICER_BY)
    order = box.order
    os.chdir(order.own[0])
    for kind, pair in box.kernel_limits:
        resource.setrlimit(kind, pair)
    if order.user is not None:
        os.setgroups(order.user.groups)
        os.setgid(order.user.gid)
        os.setuid(order.user.uid)
    if os.getuid() == 0 or order.view:
        _drop_capabilities()
    process.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if box.ruleset is not None:
        boundaries.enter_landlock(box.ruleset)
    _die_with_parent(guard)
    os.closerange(3, record)
    os.closerange(record + 1, os.sysconf("SC_OPEN_MAX"))


def _die_with_parent(parent: int) -> None:
    """Kills this process when its parent ends; at once if that has ended already."""
    process.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _drop_bounding_set() -> None:
    """Keeps root's capabilities from programs that this process starts."""
    process.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(MOST_CAPABILITIES):
        process.prctl(PR_CAPBSET_DROP, number)


def _drop_capabilities() -> None:
    """Gives up root's capabilities for good. Raises OSError."""
    if sys.platform != "linux":
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if process.libc().capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
