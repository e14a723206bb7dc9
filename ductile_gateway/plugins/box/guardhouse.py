"""The process that starts guards: small, so that a guard costs a fork and not the start of an interpreter.

Its stdin is a socket: it gets an order with the call's held lock, and answers with an errno, 0 for a started guard.
Without a gateway at the other end it stays until the last guard is gone.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import time
from typing import NoReturn

from ductile_gateway.plugins.box.guard import keep
from ductile_gateway.plugins.box.order import Order
from ductile_gateway.plugins.box.tree import end_all_below, tasks_of
from groundwork.service import process

LENGTH = struct.Struct("!I")
ANSWER = struct.Struct("!i")
COUNTED_FOR_S = 5.0
PAUSE_S = 0.001


def main() -> None:
    process.hide_memory()
    process.take_in_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it is for the gateway
    with socket.socket(fileno=0) as gateway:
        _Guardhouse(gateway).run()


class _Guardhouse:
    def __init__(self, gateway: socket.socket) -> None:
        self._gateway = gateway
        self._guards: set[int] = set()
        self._is_open = True
        self._tasks = _Tasks()

    def run(self) -> None:
        woken, wakes = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        while self._is_open or self._guards:
            line = self._gateway.fileno()
            ready = select.select([woken, line] if self._is_open else [woken], [], [])[0]
            if woken in ready:
                os.read(woken, 4096)
            if line in ready:
                self._take_order()
            self._bury()

    def _take_order(self) -> None:
        try:
            order, lock = _received(self._gateway)
        except (EOFError, OSError):
            self._is_open = False
            return
        try:
            answer = self._start(order)
        except OSError as error:
            answer = error.errno or errno.EIO
        finally:
            os.close(lock)
        with contextlib.suppress(OSError):  # a gateway that is gone finds the call by its lock
            self._gateway.sendall(ANSWER.pack(answer))

    def _start(self, order: bytes) -> int:
        parsed = Order.of_json(order)
        tasks = self._tasks.of(parsed.user.uid if parsed.user else os.getuid())
        guard = os.fork()
        if guard == 0:
            _become_guard(parsed, tasks)
        self._guards.add(guard)
        return 0

    def _bury(self) -> None:
        was_killed = False
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                was_killed |= ended[0] in self._guards and ended[1] != 0
                self._guards.discard(ended[0])
        # What a guard that was killed had under it is ours now.
        while was_killed and end_all_below(os.getpid(), but=self._guards):
            time.sleep(PAUSE_S)


class _Tasks:
    """How many processes and threads a user has: counting them takes milliseconds, so not for every call."""

    def __init__(self) -> None:
        self._counted: dict[int, tuple[float, int]] = {}

    def of(self, user: int) -> int:
        counted_at, number = self._counted.get(user, (float("-inf"), 0))
        if time.monotonic() - counted_at > COUNTED_FOR_S:
            number = tasks_of(user)
            self._counted[user] = time.monotonic(), number
        return number


def _become_guard(order: Order, tasks: int) -> NoReturn:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # the gateway's end is of the guardhouse alone
        keep(order, tasks)
    finally:
        os._exit(1)


def _received(gateway: socket.socket) -> tuple[bytes, int]:
    head, descriptors, *_ = socket.recv_fds(gateway, LENGTH.size, 1)
    try:
        return _exactly(gateway, *LENGTH.unpack(head)), descriptors[0]
    except (EOFError, struct.error, IndexError):  # half an order, of a gateway that was killed
        for descriptor in descriptors:
            os.close(descriptor)
        raise EOFError from None


def _exactly(gateway: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        piece = gateway.recv(length - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content
