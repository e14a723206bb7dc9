"""Clocks, randomness and threads of the machine.

The machine is looked up at each call, so that a simulated process can have its own (`use`).
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`wall`: UTC. `monotonic`: seconds, without those in which the machine slept; `uptime`: seconds, with them."""

    wall: Callable[[], datetime]
    monotonic: Callable[[], float]
    uptime: Callable[[], float]
    entropy: Callable[[int], bytes]


THIS = Machine(
    wall=partial(datetime.now, UTC),
    monotonic=time.monotonic,
    uptime=partial(time.clock_gettime, BOOT),
    entropy=secrets.token_bytes,
)
_machine = ContextVar("machine", default=THIS)
this = _machine.get
"""Machine of this context; objects made in it may keep its clocks."""
use = _machine.set
"""Sets the machine of this context and of tasks started in it."""


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Changes when the machine restarts; empty where the system does not tell."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def utc_now() -> datetime:
    return _machine.get().wall()


def monotonic() -> float:
    return _machine.get().monotonic()


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits for the event, so long at most. asyncio.wait_for may lose a cancellation here (Python 3.11)."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def entropy(size: int) -> bytes:
    return _machine.get().entropy(size)


def token_hex(size: int) -> str:
    return entropy(size).hex()


def new_uuid() -> UUID:
    return UUID(bytes=entropy(16), version=4)


async def in_daemon_thread(work: Callable[[], T], *, name: str) -> T:
    """Runs `work` in a thread for which the end of the process does not wait."""
    done = Future[T]()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(done)
