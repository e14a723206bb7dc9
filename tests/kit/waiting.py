"""The one way in which tests wait, for a fact that becomes true; and work beside a test."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

LOOK_S = 0.005


def _not_in_time() -> str:
    return "it did not come true in time"


async def until(
    look: Callable[[], Any],
    when: Callable[[Any], object] = bool,
    *,
    within_s: float = 10.0,
    otherwise: Callable[[], str] = _not_in_time,
) -> Any:
    """Looks (perhaps by awaiting) until `when` is true of what is seen, and returns that. Raises AssertionError with
    the text of `otherwise` and with what was seen last."""
    deadline = time.monotonic() + within_s
    while not when(seen := await _value(look())):
        assert time.monotonic() < deadline, f"{otherwise()}: {seen!r:.2000}"
        await asyncio.sleep(LOOK_S)
    return seen


async def _value(seen: Any) -> Any:
    return await seen if inspect.isawaitable(seen) else seen


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def wait_until(
    fact: Callable[[], object], otherwise: Callable[[], str] = _not_in_time, *, within_s: float = 30.0
) -> None:
    """Waits as `until` does, without an event loop."""
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(LOOK_S)
