"""One plugin process: started by a guard that outlives the gateway, waited for, and ended at its deadline.

Not by asyncio's subprocess, which kills its children when the loop closes.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import get_args

import ductile_gateway
from ductile_gateway.plugins.box.guard import CALL, FREE, IDLE_S
from ductile_gateway.plugins.box.guardhouse import LENGTH
from ductile_gateway.plugins.box.order import MARK, OWN, Order, User
from ductile_gateway.plugins.box.tree import end_marked
from ductile_gateway.plugins.boxes import Key, Ready, mark_of
from ductile_gateway.plugins.call_folder import CallFolder, locked
from ductile_gateway.plugins.response import Ending

PROGRAM = """
import sys
sys.path[0] = sys.argv[1]
from ductile_gateway.plugins.box.guardhouse import main
main()
"""
NO_CALL = "0" * 40
OLD_S = 60.0
"""A guard that is so old takes no further call."""


class Guard:
    """The gateway's end of a line to a guard, which runs one call at a time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self.made_at = self.idle_since = time.monotonic()
        self.is_free = False

    def start(self, name: str, folder: int, seconds: float) -> None:
        """`folder`: of the call, locked. Raises ConnectionError where the guard is gone; then nothing was started."""
        self.is_free = False
        socket.send_fds(self._line, [CALL.pack(seconds, name.encode())], [folder])

    async def ended(self) -> None:
        with contextlib.suppress(ConnectionError):
            self.is_free = await asyncio.get_running_loop().sock_recv(self._line, len(FREE)) == FREE

    def leave(self) -> None:
        self._line.close()


class Guards:
    """Guards that are warm, by what they run. `places`: the folder of theirs, where only such guards have anything."""

    def __init__(self, places: Path, environment: Mapping[str, str]) -> None:
        places.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._places = places.resolve()
        self._environment = environment
        self._turn = threading.Lock()
        self._houses: list[_Guardhouse] = []
        self._idle = defaultdict[Key, list[Guard]](list)
        for place in self._places.iterdir():  # of a guard that was killed with its guardhouse
            if not CallFolder(place).running():
                shutil.rmtree(place, ignore_errors=True)
        weakref.finalize(self, _leave, self._houses, self._idle)

    def start(self, ready: Ready, folder: CallFolder, lock: int, seconds: float) -> Guard:
        """A guard that carries out the call. Raises OSError, and then nothing was started."""
        while guard := self._taken(ready.key):
            try:
                guard.start(folder.path.name, lock, seconds)
            except ConnectionError:  # it was killed
                guard.leave()
            else:
                return guard
        guard = self._made(ready.order)
        guard.start(folder.path.name, lock, seconds)
        return guard

    def give_back(self, ready: Ready, guard: Guard) -> None:
        now = time.monotonic()
        if not guard.is_free or now - guard.made_at > OLD_S:
            guard.leave()
            return
        guard.idle_since = now
        with self._turn:
            self._idle[ready.key].append(guard)

    def _taken(self, key: Key) -> Guard | None:
        with self._turn:
            return self._idle[key].pop() if self._idle.get(key) else None

    def _sweep(self) -> None:
        since = time.monotonic() - IDLE_S
        for guards in self._idle.values():
            while guards and guards[0].idle_since < since:  # it has ended by itself
                guards.pop(0).leave()

    def _made(self, order: Order) -> Guard:
        place, (ours, its) = self._place(order.user), socket.socketpair()
        ours.setblocking(False)
        content = order._replace(place=str(place)).to_json()
        with its, locked(place) as lock, self._turn:
            self._sweep()
            try:
                self._house().ask(content, its, lock)
            except ConnectionError:  # it was killed
                self._houses.pop().leave()
                self._house().ask(content, its, lock)
        return Guard(ours)

    def _place(self, user: User | None) -> Path:
        place = Path(tempfile.mkdtemp(prefix="agentic-call-", dir=None if user else self._places)).resolve()
        for path in (place, *(place / name for name in OWN)):
            path.mkdir(mode=0o700, exist_ok=True)
            if user is not None:
                os.chown(path, user.uid, user.gid)
        return place

    def _house(self) -> "_Guardhouse":
        if not self._houses:
            self._houses.append(_Guardhouse(self._environment))
        return self._houses[0]


class _Guardhouse:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._line, its = socket.socketpair()
        root = Path(ductile_gateway.__file__).parents[1]
        with its:
            self._process = subprocess.Popen(  # noqa: S603 - no text of others is part of it
                [sys.executable, "-c", PROGRAM, str(root)],
                env={**environment, MARK: NO_CALL},
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, order: bytes, line: socket.socket, lock: int) -> None:
        socket.send_fds(self._line, [LENGTH.pack(len(order))], [line.fileno(), lock])
        self._line.sendall(order)

    def leave(self) -> None:
        self._line.close()
        self._process.returncode = self._process.poll() or 0


def _leave(houses: list[_Guardhouse], idle: dict[Key, list[Guard]]) -> None:
    for guard in chain.from_iterable(idle.values()):
        guard.leave()
    idle.clear()
    while houses:
        houses.pop().leave()


SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


async def attend(folder: CallFolder, *, deadline_at: datetime, grace_s: float, guard: Guard | None = None) -> Ending:
    """Wait until all of the call is gone; at its deadline it is ended, with its guard if need be. Cancelling leaves it
    alone. `guard`: which this gateway has started."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout((deadline_at - datetime.now(UTC)).total_seconds()):
            await (guard.ended() if guard else _gone(folder))
    if was_overdue := folder.running():
        await _signal_until_gone(folder, signal.SIGTERM, seconds=2 * grace_s)
        await _signal_until_gone(folder, signal.SIGKILL, seconds=grace_s)
    if folder.number("exit") is None and folder.number("began") is not None:
        await asyncio.to_thread(end_marked, mark_of(folder.path), within_s=grace_s)
    stopped = next((ending for ending in get_args(Ending) if ending == folder.noted("stopped")), None)
    return stopped or ("overdue" if was_overdue else "ended")


async def _gone(folder: CallFolder) -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    while folder.running():  # noqa: ASYNC110 - another process holds the lock
        # A tenth of the time waited, so that looking never delays a call by much more than that.
        await asyncio.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, (clock() - began) / 10)))


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
