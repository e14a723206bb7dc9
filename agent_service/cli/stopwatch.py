"""How long the steps of a run take, read off its entries."""

from datetime import datetime, timedelta
from typing import Any


class Stopwatch:
    """Is shown the entries in order, from the run's first on. May be read by another thread meanwhile."""

    def __init__(self) -> None:
        self._began: dict[int, datetime] = {}
        self._ended: dict[int, datetime] = {}
        self._pending: int | None = None

    def saw(self, entry: dict[str, Any]) -> None:
        at, pending = datetime.fromisoformat(entry["at"]), entry["pending_step"]
        if self._pending is not None and self._pending != pending:
            self._ended = {**self._ended, self._pending: at}
        if pending is not None:
            self._began = {pending: at, **self._began}
        self._pending = pending

    def took(self, now: datetime) -> dict[int, timedelta]:
        """By step, all attempts together; the pending one until `now`."""
        began, ended = self._began, self._ended
        return {step: ended.get(step, now) - began[step] for step in sorted(began)}
