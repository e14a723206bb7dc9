"""A run's folder is written when somebody asks for it: where several agents share a store, none writes those of all.

Whoever is asked knows the newest entry of the run, wherever it was committed, and its pages are as new as that.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from agent_service.journal import Run
from agent_service.telling.folder.projector import Projector
from groundwork.service.errors import TryAgain

REMEMBERED_RUNS = 1024


class Runs(Protocol):
    """The part of the port RunStore that tells how a run stands."""

    async def load(self, run_id: str) -> Run | None:
        """The run, or None. Raises Damaged and TryAgain."""


class OnDemand:
    """Brings folders up to date, one after the other."""

    def __init__(self, runs: Runs, projector: Projector) -> None:
        self._runs = runs
        self._projector = projector
        self._written: OrderedDict[str, str] = OrderedDict()
        """Of the runs that were asked for last: the hash of the newest entry that their folders tell."""
        self._turn = asyncio.Lock()

    async def bring_up_to_date(self, run_id: str) -> None:
        """Raises Damaged, and TryAgain where it cannot be written now."""
        async with self._turn:
            run = await self._runs.load(run_id)
            if run is None or self._written.get(run_id) == run.head:
                return
            if why := await self._projector.write(run_id):
                raise TryAgain(f"the files of run {run_id} are not written: {why}; ask again")
            self._written[run_id] = run.head
            self._written.move_to_end(run_id)
            if len(self._written) > REMEMBERED_RUNS:
                self._written.popitem(last=False)
