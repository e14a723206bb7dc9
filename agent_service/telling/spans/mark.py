"""Until when all traces are known to be sent: the time of an empty file beside the runs' folders."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

FILE = ".traced"
MARGIN = timedelta(seconds=60)
"""Runs are told again from so much earlier: telling twice is cheap."""
LONGEST_BACK = timedelta(days=1)


class Mark:
    """`told_until`: None for never."""

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
