"""The process that forks guards: small, so that a guard costs a fork and not the start of an interpreter.

Its stdin is a socket. Each order comes with the guard's end of its line to the gateway, and the lock of the guard's
place. After the gateway is gone it stays until the last guard has ended.
"""

import contextlib
import os
import select
import socket
import struct
import time
from typing import NoReturn

from ductile_gateway.plugins.box.guard import serve, woken_by_signals
from ductile_gateway.plugins.box.order import LENGTH, Order
from ductile_gateway.plugins.box.tree import end_all_below
from groundwork.service import process

PAUSE_S = 0.001


def main() -> None:
    process.hide_memory()
    process.become_subreaper()
    woken, is_open, places = woken_by_signals(), True, dict[int, str]()  # by guard
    with socket.socket(fileno=0) as gateway:
        line = gateway.fileno()
        while is_open or places:
            ready = select.select([woken, line] if is_open else [woken], [], [])[0]
            if woken in ready:
                os.read(woken, 4096)
            if line in ready:
                is_open = _take_order(gateway, places)
            _reap(places)


def _take_order(gateway: socket.socket, places: dict[int, str]) -> bool:
    """Returns False once the gateway is gone."""
    descriptors: list[int] = []
    try:
        head, descriptors, *_ = socket.recv_fds(gateway, LENGTH.size, 2)
        order = Order.of_json(_exactly(gateway, *LENGTH.unpack(head)))
        guard = os.fork()
        if guard == 0:
            _become_guard(order, descriptors[0])
        places[guard] = order.place
    except (EOFError, struct.error):  # half an order, of a gateway that was killed
        return False
    except OSError:  # the gateway sees the end of the line
        return True
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _reap(places: dict[int, str]) -> None:
    was_killed, left = False, list[str]()
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if place := places.pop(ended[0], ""):
                was_killed |= ended[1] != 0
                left.append(place)
    # The children of a guard that was killed are ours now.
    while was_killed and end_all_below(os.getpid(), but=places):
        time.sleep(PAUSE_S)
    for place in left:
        import shutil  # costs every fork a millisecond, and guards end seldom

        shutil.rmtree(place, ignore_errors=True)


def _become_guard(order: Order, line: int) -> NoReturn:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # only the guardhouse reads orders
        serve(order, socket.socket(fileno=line))
    finally:
        os._exit(1)


def _exactly(gateway: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        piece = gateway.recv(length - len(content))
        if not piece:
            raise EOFError
        content += piece
    return content
