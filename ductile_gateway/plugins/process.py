"""One plugin process: started by a guard that outlives the gateway, waited for, and ended at its deadline.

Not by asyncio's subprocess, which kills its children when the loop closes.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, get_args

import ductile_gateway
from ductile_gateway.plugins.box.guardhouse import ANSWER, LENGTH
from ductile_gateway.plugins.box.order import Order
from ductile_gateway.plugins.box.tree import end_marked
from ductile_gateway.plugins.boxes import mark_of
from ductile_gateway.plugins.call_folder import CallFolder
from ductile_gateway.plugins.response import Ending

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
        """An errno, 0 where the guard was started. Raises ConnectionError where it is gone."""
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


PASSED_ON = ("PATH", "HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


def plugin_environment(
    ours: Mapping[str, str], passthrough: Iterable[str] = (), *, python: Path | None = None
) -> dict[str, str]:
    """As in Ductile: PATH, HOME, locale, zone, TMPDIR and what is named. `python`: its folder comes first on PATH."""
    names = {*PASSED_ON, *passthrough}
    seen = {name: value for name, value in ours.items() if name in names or name.startswith("LC_")}
    if python is not None:
        seen["PATH"] = os.pathsep.join((str(python.parent), seen.get("PATH", os.defpath)))
    return seen


async def attend(folder: CallFolder, *, deadline_at: datetime, grace_s: float) -> Ending:
    """Wait until all of the call is gone; at its deadline it is ended, with its guard if need be. Cancelling leaves it
    alone."""
    clock = asyncio.get_running_loop().time
    began = clock()
    overdue = began + (deadline_at - datetime.now(UTC)).total_seconds()
    while folder.running() and clock() < overdue:  # noqa: ASYNC110 - another process holds the lock
        await asyncio.sleep(_pause(clock() - began))
    if was_overdue := folder.running():
        await _signal_until_gone(folder, signal.SIGTERM, seconds=2 * grace_s)
        await _signal_until_gone(folder, signal.SIGKILL, seconds=grace_s)
    if folder.number("exit") is None and folder.number("began") is not None:
        await asyncio.to_thread(end_marked, mark_of(folder.path), within_s=grace_s)
    return _ending(folder.noted("stopped")) or ("overdue" if was_overdue else "ended")


def _ending(noted: str) -> Ending | None:
    return next((ending for ending in get_args(Ending) if ending == noted), None)


def _pause(waited: float) -> float:
    """Until the next look: a tenth of the time waited, so that looking never delays a call by much more than that."""
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, waited / 10))


async def _signal_until_gone(folder: CallFolder, number: signal.Signals, *, seconds: float) -> None:
    """Send the signal once and wait so long at most: a process that cannot even be killed does not block."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    signalled = False
    while folder.running() and clock() < until:
        signalled = signalled or _signal(folder, number)
        await asyncio.sleep(LONGEST_PAUSE / 10)


def _signal(folder: CallFolder, number: signal.Signals) -> bool:
    guard = folder.number("began")
    if guard is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(guard, number)  # the plugin is in a group of its own
    return True
