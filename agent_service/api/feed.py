"""Tells who follows a run that it has new entries. Only a nudge: the entries themselves are read from the journal."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Feed:
    """One nudge per commit and follower; a nudge that was not taken yet is not repeated."""

    def __init__(self) -> None:
        self._followers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def tell(self, run_id: str) -> None:
        """Nudge the followers of a run."""
        for follower in self._followers.get(run_id, ()):
            follower.set()

    @contextmanager
    def follow(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run has new entries; the follower clears it before it reads."""
        follower = asyncio.Event()
        self._followers[run_id].add(follower)
        try:
            yield follower
        finally:
            self._followers[run_id].discard(follower)
            if not self._followers[run_id]:
                del self._followers[run_id]
