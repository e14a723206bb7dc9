"""The process that becomes the plugin: it gives up privileges step by step, and then executes the plugin.

The order matters: session, the paths it will still reach, limits, user, privileges, the other paths.
"""

import os
import signal
from typing import NoReturn

from ductile_gateway.plugins.box import landlock, limits, view
from ductile_gateway.plugins.box.order import Order, User
from groundwork.service import process

CANNOT_RUN = 126
MOST_SAID = 1000
NICER_BY = 5
"""The services go first where a plugin and they want the processor at once."""


def become(order: Order, streams: tuple[int, int, int], said: int, *, guard: int, tasks: int) -> NoReturn:
    """Never returns. An error is written to `said`. `streams`: stdin, stdout and stderr. `guard`: the parent."""
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        _enter(order, said, guard, tasks)
        os.execve(order.entrypoint, [order.entrypoint], order.environment)  # noqa: S606 - no shell is meant
    except BaseException as error:  # noqa: BLE001 - nothing of ours may go on in this process
        os.write(said, f"{order.entrypoint}: {error}"[:MOST_SAID].encode(errors="replace"))
    finally:
        os._exit(CANNOT_RUN)


def _enter(order: Order, said: int, guard: int, tasks: int) -> None:
    os.setsid()
    _restore_signals()
    os.nice(NICER_BY)
    if order.view:
        room_mb, closed = order.limits.file_mb, order.closed
        view.enter(read=order.read, write=order.write, frozen=order.frozen, closed=closed, room_mb=room_mb)
    os.chdir(f"{order.place}/work")
    ruleset = _ruleset(order)
    limits.impose(order.limits, tasks)
    _be(order.user)
    if os.getuid() == 0 or order.view:
        process.drop_capabilities()
    process.gain_nothing()
    if ruleset is not None:
        landlock.restrict(ruleset)
    process.die_with(guard)
    os.closerange(3, said)
    os.closerange(said + 1, os.sysconf("SC_OPEN_MAX"))


def _ruleset(order: Order) -> int | None:
    if order.landlock:
        return landlock.prepare(order.read, (*order.write, *(view.TEMPORARY if order.view else ())))
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
