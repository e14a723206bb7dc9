"""Keeps the workspace in step with the journal: after each commit a run is marked, and written with others in a batch.

Ended runs are written soon, runs that go on at most once per second each. The marks are in memory only: after a start,
`catch_up` with the runs that may have moved since they were written. What fails (full disk) is tried again later.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable

from agent_service.errors import Damaged
from agent_service.journal import Commit
from agent_service.ports import Archive, Artifacts
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import Failures, TrailWriter
from agent_service.telling.marks import Marks
from agent_service.telling.recollection import Recollection

MAX_BATCH = 32
RESTS_PER_WORK = 3
MAX_REMEMBERED = 16 << 20
"""Bytes of entries kept in memory, so that live runs need not be read again."""

log = logging.getLogger(__name__)


OnDamage = Callable[[Damaged], None]
"""Told of a run whose journal cannot be read."""


class Projector:
    """The writer of all trails of a process. `live_s` and `soon_s`: how long marks of live and ended runs wait."""

    def __init__(
        self,
        archive: Archive,
        workspace: Workspace,
        artifacts: Artifacts,
        *,
        live_s: float = 1.0,
        soon_s: float = 0.05,
        on_damage: OnDamage = lambda _: None,
    ) -> None:
        self._on_damage = on_damage
        self._live_s = live_s
        self._soon_s = soon_s
        self._marks = Marks()
        self._recollection = Recollection(MAX_REMEMBERED)
        self._writer = TrailWriter(archive, workspace, artifacts, recollection=self._recollection)
        self._turn = asyncio.Lock()

    def committed(self, commit: Commit) -> None:
        """A run has a new entry. What is told here, from its first entry on, is neither read nor decided again."""
        self._recollection.add(commit)
        self._marks.mark(commit.entry.run_id, self._soon_s if commit.state.final else self._live_s)

    def touched(self, run_id: str, ended: bool) -> None:
        """A run has new entries, which stand in the archive."""
        self._recollection.forget(run_id)
        self._marks.mark(run_id, self._soon_s if ended else self._live_s)

    def catch_up(self, run_ids: Iterable[str]) -> None:
        """Runs that may have entries which were never written."""
        for run_id in run_ids:
            self.touched(run_id, ended=True)

    async def run(self) -> None:
        """Write what is due, until cancelled. Runs come first: at most a quarter of the time goes into writing."""
        while True:
            await self._marks.wait()
            await asyncio.sleep(self._soon_s)
            while due := self._marks.take(MAX_BATCH):
                began = time.monotonic()
                async with self._turn:
                    await self._write(due)
                await asyncio.sleep((time.monotonic() - began) * RESTS_PER_WORK)

    async def flush(self) -> None:
        """Write all that is marked now, once. What fails stays marked."""
        async with self._turn:
            left = self._marks.take_all()
            while left:
                batch, left = left[:MAX_BATCH], left[MAX_BATCH:]
                await self._write(batch, left)

    async def rebuild(self, run_id: str) -> None:
        """Delete the run's folder and write it from the journal; a run without entries has none.

        Raises IllegalName, OSError, ValueError for a journal that cannot be told, and what the ports raise.
        """
        async with self._turn:
            await self._writer.rebuild(run_id)

    async def _write(self, run_ids: Collection[str], not_yet: Collection[str] = ()) -> None:
        """Write these runs. Should it be cancelled, they and those `not_yet` begun are marked again."""
        try:
            failed = await self._writer.write(run_ids)
        except asyncio.CancelledError:
            for run_id in (*run_ids, *not_yet):
                self._marks.mark(run_id, 0.0)
            raise
        self._settle(run_ids, failed)

    def _settle(self, run_ids: Collection[str], failed: Failures) -> None:
        """Mark again what failed, but not what fails every time: an illegal name, an entry of a newer version."""
        again = [run_id for run_id, error in failed.items() if not isinstance(error, ValueError)]
        self._marks.settled([run_id for run_id in run_ids if run_id not in again])
        for run_id in failed.keys() - set(again):
            error = failed[run_id]
            if isinstance(error, Damaged):
                self._on_damage(error)
            log.error("workspace not written, given up", extra={"run_id": run_id, "why": repr(failed[run_id])})
        if again:
            within_s = self._marks.failed(again)
            facts = {"run_id": again[0], "runs": len(again), "within_s": within_s, "why": repr(failed[again[0]])}
            log.error("workspace not written, tried again", extra=facts)
