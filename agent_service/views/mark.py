"""How far runs have been rendered or traced, as the time of an empty file."""

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from groundwork.service import store_folder

MARGIN = timedelta(seconds=60)
"""An entry's instant may be so much earlier than its commit."""


class Mark:
    """Its methods raise nothing: without a mark, nothing of the past is caught up with."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, at: datetime) -> None:
        """All that was committed before `at` is done."""
        with suppress(OSError):
            store_folder.folder_of_ours(self._file.parent)
            self._file.touch(mode=0o600)
            os.utime(self._file, (at.timestamp(), at.timestamp()))

    def since(self, now: datetime) -> datetime:
        """Runs with an entry from then on may have to be caught up with. The first mark is made here."""
        try:
            noted = datetime.fromtimestamp(self._file.stat().st_mtime, UTC)
        except OSError:
            self.note(now)
            noted = now
        return min(noted, now) - MARGIN
