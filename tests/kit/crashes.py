"""A process that dies before or after a call of one of its ports.

A test runs its subject until `Crash` comes out of it, throws the subject away, builds it anew over what a crash leaves
(the store, the bus), and looks at what the next life makes of that.
"""

import asyncio
import inspect
from typing import Any


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Points:
    """The points that a process passes, and where it dies. Then nothing passes any more, as for the other tasks of a
    killed process. `raises`: what dying looks like from inside.
    """

    def __init__(self, raises: type[BaseException] = Crash) -> None:
        self.died = asyncio.Event()
        self._raises = raises
        self.names: list[str] = []
        self._at: int | str | None = None

    def strike_at(self, where: int | str) -> None:
        """Die at the n-th point from here, counted from 1, or at the first of a name such as `before commit`."""
        self._at, self.names = where, []
        self.died.clear()

    def point(self, name: str) -> None:
        """Pass a point. Raises `raises` where the process dies."""
        self.names.append(name)
        if self.died.is_set() or self._at in (len(self.names), name):
            self.died.set()
            raise self._raises(name)


class Mortal:
    """A port of a process that can die before or after each of its calls."""

    def __init__(self, port: Any, points: Points) -> None:
        self._port = port
        self._points = points

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)
        if not inspect.iscoroutinefunction(work):
            return work

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._points.point(f"before {method}")
            value = await work(*args, **kwargs)
            self._points.point(f"after {method}")
            return value

        return call
