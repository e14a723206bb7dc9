"""Folders for processes that run the same program side by side: each has one for itself, and after a restart again.

`<root>/0`, `<root>/1` and so on: a process takes the first that no living one has, by an exclusive lock on it.
"""

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
