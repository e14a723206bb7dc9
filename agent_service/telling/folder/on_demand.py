"""Renders a run's folder when it is asked for: agents that share a store keep no folders in step."""

import asyncio
from collections import OrderedDict
from typing import Protocol

from agent_service.run.journal import Run
from agent_service.telling.folder.projector import Projector
from agent_service.telling.folder.workspace import Workspace
from groundwork.service.errors import TryAgain

REMEMBERED_RUNS = 1024


class Runs(Protocol):
    async def load(self, run_id: str) -> Run | None:
        """Raises Damaged and TryAgain."""


class OnDemand:
    def __init__(self, runs: Runs, projector: Projector, workspace: Workspace) -> None:
        self._runs = runs
        self._projector = projector
        self._workspace = workspace
        self._written: OrderedDict[str, str] = OrderedDict()
        """The newest entry's hash in the folders of the runs that were asked for last."""
        self._turn = asyncio.Lock()

    async def bring_up_to_date(self, run_id: str) -> None:
        """Raises Damaged, and TryAgain where it cannot be written now."""
        async with self._turn:
            run = await self._runs.load(run_id)
            if run is None or (self._written.get(run_id) == run.head and await _is_there(self._workspace, run_id)):
                return
            await _write(self._projector, run_id)
            self._written[run_id] = run.head
            self._written.move_to_end(run_id)
            if len(self._written) > REMEMBERED_RUNS:
                self._written.popitem(last=False)


class PutAway:
    def __init__(self, runs: Runs, projector: Projector, workspace: Workspace) -> None:
        self._runs = runs
        self._projector = projector
        self._workspace = workspace

    async def bring_back(self, run_id: str) -> None:
        """Raises Damaged, and TryAgain where they cannot be written now."""
        if not await _is_there(self._workspace, run_id) and await self._runs.load(run_id):
            await _write(self._projector, run_id)


async def _is_there(workspace: Workspace, run_id: str) -> bool:
    return await asyncio.to_thread(workspace.has_pages, run_id)


async def _write(projector: Projector, run_id: str) -> None:
    if why := await projector.write(run_id):
        raise TryAgain(f"the files of run {run_id} are not written: {why}; ask again")
