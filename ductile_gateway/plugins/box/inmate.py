"""The process that becomes the plugin: it gives up what a plugin may not have, and then is the plugin.

In this order, because each step takes away what the one before needs: a session of its own, the paths it will still
reach, its limits, its user, its privileges, the other paths.
"""

import contextlib
import os
import signal
import sys
from typing import NoReturn

from ductile_gateway.plugins.box import landlock, limits, view
from ductile_gateway.plugins.box.order import Order, User
from groundwork.service import kernel

CANNOT_RUN, NOT_FOUND = 126, 127
"""As a shell tells it."""
NICER_BY = 5
"""The services go first where a plugin and they want the processor at once."""


def become(order: Order, streams: tuple[int, int, int], *, guard: int, tasks: int) -> NoReturn:
    """Never returns: what cannot be done stands on stderr, and is told by the exit code.

    `streams`: its stdin, stdout and stderr. `guard`: the parent. `tasks`: how many its user has.
    """
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        _enter(order, guard, tasks)
        command = [*order.before, order.entrypoint]
        os.execvpe(command[0], command, order.environment)  # noqa: S606 - no shell is meant
    except FileNotFoundError as error:
        _give_up(order, error, NOT_FOUND)
    except BaseException as error:  # noqa: BLE001 - nothing of ours may go on in this process
        _give_up(order, error, CANNOT_RUN)


def _enter(order: Order, guard: int, tasks: int) -> None:
    os.setsid()
    _restore_signals()
    os.nice(NICER_BY)
    if order.view:
        own = [f"{order.place}/{name}" for name in ("work", "tmp")]
        view.enter(folder=order.folder, own=own, write=order.write, frozen=order.frozen, closed=order.closed)
    os.chdir(f"{order.place}/work")
    ruleset = _ruleset(order)
    limits.impose(order.limits, tasks)
    _be(order.user)
    if not order.before:  # a program that makes a box needs its privileges, and drops them itself
        if os.getuid() == 0 or order.view:
            kernel.drop_capabilities()
        kernel.gain_nothing()
    if ruleset is not None:
        landlock.restrict(ruleset)
    kernel.die_with(guard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _ruleset(order: Order) -> int | None:
    """Beside a view, only other processes end at it: it can be had without a path."""
    if order.landlock:
        return landlock.prepare(order.read, order.write)
    return landlock.prepare_for_processes() if order.view and landlock.abi() else None


def _restore_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _be(user: User | None) -> None:
    if user is not None:
        os.setgroups(user.groups)
        os.setgid(user.gid)
        os.setuid(user.uid)


def _give_up(order: Order, error: BaseException, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{order.entrypoint}: {error}\n".encode(errors="replace"))
    os._exit(code)
