"""Starts guards, by a small process that is started with the first call (`box/guardhouse.py`)."""

import os
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO

import ductile_gateway
from ductile_gateway.plugins.box.guardhouse import ANSWER, LENGTH
from ductile_gateway.plugins.box.order import Order

PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from ductile_gateway.plugins.box.guardhouse import main
main()
"""


class Guards:
    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._houses: list[_Guardhouse] = []
        weakref.finalize(self, _leave, self._houses)

    def start(self, order: Order, lock: IO[bytes]) -> None:
        """A guard that carries out the order and holds the lock. Raises OSError, and then nothing was started."""
        with self._turn:
            try:
                answer = self._house().ask(order, lock)
            except ConnectionError:  # somebody has ended it; two guards of one call do not begin it twice
                _leave(self._houses)
                answer = self._house().ask(order, lock)
        if answer:
            raise OSError(answer, os.strerror(answer))

    def _house(self) -> "_Guardhouse":
        if not self._houses:
            self._houses.append(_Guardhouse())
        return self._houses[0]


class _Guardhouse:
    def __init__(self) -> None:
        self._line, its = socket.socketpair()
        root = Path(ductile_gateway.__file__).parents[1]
        with its:
            self._process = subprocess.Popen(  # noqa: S603 - no text of others is part of it
                [sys.executable, "-I", "-S", "-c", PROGRAM, str(root)],
                env={},
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, order: Order, lock: IO[bytes]) -> int:
        """An errno, 0 where the guard was started. Raises ConnectionError where nobody is there."""
        content = order.to_json()
        socket.send_fds(self._line, [LENGTH.pack(len(content))], [lock.fileno()])
        self._line.sendall(content)
        answer = self._line.recv(ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < ANSWER.size:
            raise ConnectionResetError
        (number,) = ANSWER.unpack(answer)
        return int(number)

    def leave(self) -> None:
        self._line.close()
        self._process.returncode = self._process.poll() or 0


def _leave(houses: list[_Guardhouse]) -> None:
    while houses:
        houses.pop().leave()
