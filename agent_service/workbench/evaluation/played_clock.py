"""A clock that stands still until something happens: time is played, not waited for."""

import hashlib
from datetime import UTC, datetime, timedelta

from ulid import ULID

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When every run begins: the same prompt for the same run, so that a recording fits."""


class PlayedClock:
    """Fills the port Clock. `name` gives the run its id, the same each time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._now = BEGIN

    def now(self) -> datetime:
        return self._now

    def new_run_id(self) -> str:
        return f"run_{ULID.from_bytes(hashlib.sha256(self._name.encode()).digest()[:16])}"

    def later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        self._now = self.later(seconds)

    def advance_to(self, instant: datetime) -> None:
        """Never back: what was due while something else went on is late."""
        self._now = max(self._now, instant)

    def seconds(self) -> float:
        return (self._now - BEGIN).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
