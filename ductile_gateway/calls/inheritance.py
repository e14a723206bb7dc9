"""Calls that another gateway may have begun: requests that it was given while it had the bus.

What it knows of them is in its own store, so nobody can look for them here: a write among them is in doubt, and never
simply run. A request that comes here for the first time and was delivered before is such a one, unless it was stored
when that gateway's lease was over: without it none begins a call.
"""

from datetime import datetime


class Inheritance:
    """`predecessor` says who had the bus before, with another store, and `until` when its lease was over; None for
    nobody. Both that and when a request was stored are by the server's clock."""

    def __init__(self, predecessor: str, until: datetime | None) -> None:
        self._predecessor = predecessor
        self._until = until
        self._ours: set[str] = set()
        self._inherited: set[str] = set()

    def heard(self, key: str, *, delivered: int, at: datetime) -> None:
        """The request of call `key`, stored `at`, was delivered for the `delivered`-th time."""
        if self._until is None or at > self._until:
            return
        if delivered == 1:
            self._ours.add(key)
        elif key not in self._ours:
            self._inherited.add(key)

    def doubt(self, key: str) -> str:
        """Why the call may have been begun elsewhere; empty where it cannot."""
        if key not in self._inherited:
            return ""
        return f"the gateway that had this bus before may have begun it ({self._predecessor})"


NOTHING = Inheritance("", None)
