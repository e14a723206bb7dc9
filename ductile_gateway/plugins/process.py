"""Starts guards, which run plugin processes and outlive the gateway; waits for a call, and ends it at its deadline.

Not by asyncio's subprocess, which kills its children when the loop closes.
"""

import asyncio
import contextlib
import fcntl
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
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import ductile_gateway
from ductile_gateway.plugins.box.order import CALL, FREE, IDLE_S, LENGTH, MARK, OWN, Order, User
from ductile_gateway.plugins.box.tree import end_marked
from ductile_gateway.plugins.boxes import Key, KeyedOrder
from ductile_gateway.plugins.call_record import CallRecord, is_locked

PROGRAM = """
import sys
sys.path[0] = sys.argv[1]
from ductile_gateway.plugins.box.guardhouse import main
main()
"""
NO_CALL = "0" * 40
OLD_S = 60.0
"""An older guard takes no further call."""
ORDER_WITHIN_S = 5.0
"""A guardhouse that takes no order within this time is left for a new one."""


class Guard:
    """The gateway's end of the line to a guard, which runs one call at a time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self.made_at = self.idle_since = time.monotonic()
        self.is_free = False

    def start(self, name: str, record: int, deadline: float) -> None:
        """`record`: the locked record of the call. `deadline`: by the monotonic clock. Raises ConnectionError if the
        guard is gone: nothing was started."""
        self.is_free = False
        socket.send_fds(self._line, [CALL.pack(deadline, name.encode())], [record])

    async def ended(self) -> None:
        """Returns once nothing of the call is left, and the guard is free, or once the guard is gone."""
        with contextlib.suppress(ConnectionError):
            self.is_free = await asyncio.get_running_loop().sock_recv(self._line, len(FREE)) == FREE

    def leave(self) -> None:
        self._line.close()


class GuardPool:
    """Idle guards, by what they run. `places`: the folder in which each has its own."""

    def __init__(self, places: Path, environment: Mapping[str, str]) -> None:
        places.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._places = places.resolve()
        self._environment = environment
        self._turn, self._ordering = threading.Lock(), threading.Lock()
        self._houses: list[_GuardhouseProcess] = []
        self._idle = defaultdict[Key, list[Guard]](list)
        for place in self._places.iterdir():  # of a guard that was killed with its guardhouse
            if not is_locked(place):
                shutil.rmtree(place, ignore_errors=True)
        weakref.finalize(self, _leave, self._houses, self._idle)

    def start(self, ready: KeyedOrder, name: str, record: int, deadline: float) -> Guard:
        """Hands the call to a guard. Raises OSError, after which nothing was started."""
        while guard := self._taken(ready.key):
            try:
                guard.start(name, record, deadline)
            except ConnectionError:  # it was killed
                guard.leave()
            else:
                return guard
        guard = self._made(ready.order)
        guard.start(name, record, deadline)
        return guard

    def give_back(self, ready: KeyedOrder, guard: Guard) -> None:
        now = time.monotonic()
        if not guard.is_free or now - guard.made_at > OLD_S:
            guard.leave()
            return
        guard.idle_since = now
        with self._turn:
            self._idle[ready.key].append(guard)

    def _taken(self, key: Key) -> Guard | None:
        since = time.monotonic() - IDLE_S
        with self._turn:
            for guards in self._idle.values():
                while guards and guards[0].idle_since < since:  # it has ended by itself
                    guards.pop(0).leave()
            return self._idle[key].pop() if self._idle.get(key) else None

    def _made(self, order: Order) -> Guard:
        place, (our_end, guards_end) = self._place(order.user), socket.socketpair()
        our_end.setblocking(False)
        content = order._replace(place=str(place)).to_json()
        try:
            with guards_end, _locked(place) as lock, self._ordering:
                try:
                    self._house().ask(content, guards_end, lock)
                except (ConnectionError, TimeoutError):  # it was killed, or is stopped
                    self._houses.pop().leave()
                    self._house().ask(content, guards_end, lock)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return Guard(our_end)

    def _place(self, user: User | None) -> Path:
        place = Path(tempfile.mkdtemp(prefix="agentic-call-", dir=None if user else self._places)).resolve()
        for path in (place / name for name in OWN):
            path.mkdir(mode=0o700)
            if user is not None:
                os.chown(path, user.uid, user.gid)
        if user is not None:
            place.chmod(0o711)  # the user may pass, and not put another folder in the place of one that is emptied
        return place

    def _house(self) -> "_GuardhouseProcess":
        if not self._houses:
            self._houses.append(_GuardhouseProcess(self._environment))
        return self._houses[0]


_left: list["subprocess.Popen[bytes]"] = []
"""Guardhouses that end by themselves; the next one to start reaps them."""


class _GuardhouseProcess:
    def __init__(self, environment: Mapping[str, str]) -> None:
        _left[:] = [process for process in _left if process.poll() is None]
        self._line, guards_end = socket.socketpair()
        self._line.settimeout(ORDER_WITHIN_S)
        root = Path(ductile_gateway.__file__).parents[1]
        with guards_end:
            self._process = subprocess.Popen(  # noqa: S603 - no text of others is part of it
                [sys.executable, "-c", PROGRAM, str(root)],
                env={**environment, MARK: NO_CALL},
                stdin=guards_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, order: bytes, line: socket.socket, lock: int) -> None:
        socket.send_fds(self._line, [LENGTH.pack(len(order))], [line.fileno(), lock])
        self._line.sendall(order)

    def leave(self) -> None:
        self._line.close()
        _left.append(self._process)


def _leave(houses: list[_GuardhouseProcess], idle: dict[Key, list[Guard]]) -> None:
    for guard in chain.from_iterable(idle.values()):
        guard.leave()
    idle.clear()
    while houses:
        houses.pop().leave()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1


async def attend(record: CallRecord, *, deadline_at: datetime, grace_s: float, guard: Guard | None = None) -> bool:
    """Waits until nothing of the call is left, and returns True if that took until its deadline: then the call is
    ended, with its guard if need be. Cancelling leaves it alone. `guard`: the one that this gateway has started."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout((deadline_at - datetime.now(UTC)).total_seconds()):
            await (guard.ended() if guard else _unlocked(record))
    if guard and guard.is_free:
        return False
    if was_overdue := is_locked(record.path):
        await _signal(record, signal.SIGTERM, within_s=2 * grace_s)
        await _signal(record, signal.SIGKILL, within_s=grace_s)
    found = record.read()
    if "began" in found and "exit" not in found:
        await asyncio.to_thread(end_marked, f"{MARK}={record.path.name}".encode(), within_s=grace_s)
    return was_overdue


async def _unlocked(record: CallRecord) -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    while is_locked(record.path):  # noqa: ASYNC110 - another process holds the lock
        # A tenth of the time waited, so that polling never delays a call by much more than that.
        await asyncio.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, (clock() - began) / 10)))


async def _signal(record: CallRecord, number: signal.Signals, *, within_s: float) -> None:
    """Signals the guard, and waits until it is gone, but no longer: a process that cannot be killed does not block."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while (guard := record.guard()) is None and is_locked(record.path):  # noqa: ASYNC110 - as above
                await asyncio.sleep(LONGEST_PAUSE / 10)
            if guard is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(guard, number)  # the plugin is in a group of its own
            await _unlocked(record)
