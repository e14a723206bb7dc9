"""Folders for processes side by side: each takes the first of `<root>/0`, `<root>/1`, … that no living one has."""

import contextlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from groundwork.service import private_file
from groundwork.service.process_lock import AlreadyRunning, ProcessLock


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[Path]:
    """The folder, made if absent, for this process alone. Raises OSError."""
    private_file.closed(root)
    with contextlib.ExitStack() as held:
        for number in count():
            private_file.closed(folder := root / str(number))
            with contextlib.suppress(AlreadyRunning):
                held.enter_context(ProcessLock(folder))
                break
        yield folder
