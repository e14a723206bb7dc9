"""What runs have beside the store, as far as it goes when they do: their folders, and their artifacts on the bus."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from agent_service.archive.retention import Behind, Kind
from agent_service.views.folder.workspace import Workspace
from groundwork.service.errors import TryAgain


class Artifacts(Protocol):
    """The bucket. All methods raise TryAgain."""

    async def remove(self, run_id: str, path: str) -> None: ...

    async def sizes(self) -> Mapping[str, int]: ...


AtRest = Callable[[Collection[str]], AbstractAsyncContextManager[None]]


def _nobody_writes(_: Collection[str]) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class RunBelongings:
    """Files and artifacts of runs. `at_rest`: inside nobody writes folders, and none of these runs later."""

    def __init__(self, workspaces: Path, artifacts: Artifacts, at_rest: AtRest = _nobody_writes) -> None:
        self._workspace = Workspace(workspaces)
        self._artifacts = artifacts
        self._at_rest = at_rest

    async def remove(self, gone: Sequence[Behind]) -> None:
        """Durably, folders first: they are here. Raises TryAgain."""
        whole = [one.run_id for one in gone if one.folder]
        async with self._at_rest(whole):
            try:
                await asyncio.to_thread(self._remove_folders, gone)
            except OSError as error:
                raise TryAgain(f"folders of runs that are gone cannot be removed: {error}") from error
        for one in gone:
            for path in one.artifacts:
                await self._artifacts.remove(one.run_id, path)

    async def sizes(self, kind: Kind) -> Mapping[str, int]:
        if kind == "artifacts":
            return await self._artifacts.sizes()
        try:
            return await asyncio.to_thread(self._workspace.sizes)
        except OSError as error:
            raise TryAgain(f"what the folders of runs take cannot be measured: {error}") from error

    def _remove_folders(self, gone: Sequence[Behind]) -> None:
        self._workspace.remove(*(one.run_id for one in gone if one.folder))
        self._workspace.remove_artifacts(*(one.run_id for one in gone if not one.folder))
