"""The process that becomes the plugin: it gives up privileges step by step, and then executes the plugin.

The order matters: session, limits, user, privileges, paths. What is the same for each call of a plugin, its guard does
before: the view, in which it lives itself from then on, and the paths that landlock leaves.
"""

import os
import signal
from contextlib import suppress
from select import PIPE_BUF
from typing import NoReturn

from ductile_gateway.plugins.box import boundaries
from ductile_gateway.plugins.box.order import MARK, Order, apply_limits, kernel_limits
from ductile_gateway.plugins.box.tree import tasks_of
from groundwork.service import process

CANNOT_RUN = 126
MOST_SAID = 1000
NICER_BY = 5
"""The services go first where a plugin and they want the processor at once."""


class PreparedBox:
    """The box of one plugin, made ready. `flaw`: why it cannot be."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.flaw = ""
        self.ruleset: int | None = None
        tasks = tasks_of(order.user.uid if order.user else os.getuid())
        self.kernel_limits = kernel_limits(order.limits, tasks)
        self._reasons, self.reason = os.pipe()
        os.set_blocking(self._reasons, False)
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
            self.flaw = f"{order.entrypoint}: {error}"[:MOST_SAID]

    def _close(self) -> None:
        order, write = self.order, (*self.order.write, *self.order.own)
        if order.view:
            room_mb, closed = order.limits.file_mb, order.closed
            boundaries.enter_view(read=order.read, write=write, frozen=order.frozen, closed=closed, room_mb=room_mb)
            process.hide_memory()
            self._temporary = _used()
        process.limit_capabilities()
        if order.landlock:
            self.ruleset = boundaries.prepare_landlock(
                order.read, (*write, *(boundaries.TEMPORARY if order.view else ()))
            )
        elif order.view and boundaries.landlock_abi():
            self.ruleset = boundaries.prepare_landlock_for_processes()

    def reason_not_run(self) -> bytes:
        """The reason why the last call could not execute its program; empty where it could."""
        with suppress(BlockingIOError):
            return os.read(self._reasons, PIPE_BUF).replace(b"\n", b" ")
        return b""

    def is_as_made(self) -> bool:
        """True if no call has left anything in the temporary folders of the view."""
        return not self.order.view or _used() == self._temporary


def _used() -> tuple[int, int]:
    used = os.statvfs(os.path.realpath(boundaries.TEMPORARY[0]))
    return used.f_files - used.f_ffree, used.f_blocks - used.f_bfree


def execute(cell: PreparedBox, name: str, streams: tuple[int, int, int], *, guard: int) -> NoReturn:
    """Never returns. `streams`: stdin, stdout and stderr. `guard`: the parent."""
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        _enter(cell, guard)
        order = cell.order
        own = {MARK: name, "TMPDIR": order.own[1]}
        if cell.program:
            os.close(cell.reason)
            process.show_memory()
            cell.program.run(own)
        os.execve(order.entrypoint, [order.entrypoint], order.environment | own)  # noqa: S606 - no shell is meant
    except BaseException as error:  # noqa: BLE001 - nothing of ours may go on in this process
        os.write(cell.reason, f"{cell.order.entrypoint}: {error}"[:MOST_SAID].encode(errors="replace"))
    finally:
        os._exit(CANNOT_RUN)


def _enter(cell: PreparedBox, guard: int) -> None:
    os.setsid()
    if cell.program:  # else the start of the program does it
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
    os.nice(NICER_BY)
    order = cell.order
    os.chdir(order.own[0])
    apply_limits(cell.kernel_limits)
    if order.user is not None:
        os.setgroups(order.user.groups)
        os.setgid(order.user.gid)
        os.setuid(order.user.uid)
    if os.getuid() == 0 or order.view:
        process.drop_capabilities()
    process.gain_nothing()
    if cell.ruleset is not None:
        boundaries.enter_landlock(cell.ruleset)
    process.die_with(guard)
    os.closerange(3, cell.reason)
    os.closerange(cell.reason + 1, os.sysconf("SC_OPEN_MAX"))
