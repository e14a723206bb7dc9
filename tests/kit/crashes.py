"""A process that dies at a point that it passes: before or after a call of one of its ports, or wherever a test says.

A test runs its subject until `Crash` comes out of it, throws the subject away, builds it anew over what a crash leaves
(the store, the bus), and looks at what the next life makes of that.
"""

import asyncio
import inspect
from collections import Counter
from typing import Any


class Crash(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and go on."""


class Points:
    """The points that a process passes, by name, and where it dies: at the n-th, or at one of a name.

    `final`: once it has died nothing passes any more, as for the other tasks of a killed process. `raises`: what dying
    looks like from inside.
    """

    def __init__(self, *, final: bool = False, raises: type[BaseException] = Crash) -> None:
        self.names: list[str] = []
        self.died = asyncio.Event()
        self._final = final
        self._raises = raises
        self._at: int | None = None
        self._named: Counter[str] = Counter()

    def strike_at(self, number: int | None) -> None:
        """Die at the `number`-th point from here, counted from 1; None: nowhere."""
        self._at, self.names = number, []

    def strike_each(self, name: str, times: int = 1) -> None:
        """Die the next `times` times that a point of this name is passed, in whatever life."""
        self._named[name] = times

    def point(self, name: str) -> None:
        """Pass a point. Raises `raises` where the process dies."""
        self.names.append(name)
        named = self._named[name] > 0
        self._named[name] -= named
        if named or len(self.names) == self._at or (self._final and self.died.is_set()):
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
