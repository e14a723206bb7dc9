"""Until when the traces of all runs are known to be sent: the time of an empty file beside the runs' folders."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

FILE = ".traced"
MARGIN = timedelta(seconds=60)
"""How much earlier a run may have moved that is told again: what is told twice costs less than what is not told."""
LONGEST_BACK = timedelta(days=1)
"""How far back runs are told again."""


class Mark:
    """`told_until` says until when the agent knows that all was handed over; None for never."""

    def __init__(self, folder: Path, told_until: Callable[[], datetime | None]) -> None:
        self._file = folder / FILE
        self._told_until = told_until

    def note(self) -> None:
        if at := self._told_until():
            with suppress(OSError):
                self._file.touch()
                os.utime(self._file, (at.timestamp(), at.timestamp()))

    def noted(self) -> datetime:
        with suppress(OSError):
            if not self._file.exists():
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.touch()
            noted = datetime.fromtimestamp(self._file.stat().st_mtime, UTC) - MARGIN
            return max(noted, datetime.now(UTC) - LONGEST_BACK)
        return datetime.now(UTC)
