"""Deletes expired runs in small steps.

    leftovers of an earlier pass ─▶ expired runs ─▶ expired artifacts ─▶ oldest runs over a size limit ─▶ file shrunk

Open runs stay, and those that an open run needs. A step takes milliseconds, and the pause after it several times that.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from agent_service.archive.retention import (
    EndedRun,
    ExpiryFilter,
    KeepRunsSettings,
    Kind,
    Leftovers,
    PruneReport,
)
from agent_service.core.waiting import FINAL, Status
from agent_service.run.ports import Clock
from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import TryAgain

LOOK_S = 3600.0
FIRST_LOOK_S = 60.0
AT_ONCE = 20
"""Runs per step, which takes the writer some 5 ms."""
REST_S, MOST_REST_S = 9.0, 2.0
"""Pause after a step as a multiple of its duration, and its limit in seconds."""

log = logging.getLogger(__name__)


class RemovableArtifacts(Protocol):
    """The bucket of artifacts. All methods raise TryAgain."""

    async def remove(self, run_id: str, path: str) -> None: ...

    async def sizes(self) -> Mapping[str, int]: ...


T = TypeVar("T")
Gone = defaultdict[bool, set[str]]
"""Ids of runs that went; by True, those that lost only artifacts."""
AtRest = Callable[[Collection[str]], AbstractAsyncContextManager[Any]]


class Pruner:
    """`workspaces`: the folders of runs. `at_rest`: a context in which none is written, and after which none of these
    runs is. `reopen_days`: days in which an escalation may be answered."""

    def __init__(
        self,
        store: RunStore,
        workspaces: Path,
        artifacts: RemovableArtifacts,
        rules: KeepRunsSettings,
        reopen_days: float,
        clock: Clock,
        at_rest: AtRest = nullcontext,
    ) -> None:
        self._store, self._records = store, store.retention
        self._workspace, self._artifacts, self._at_rest = Workspace(workspaces), artifacts, at_rest
        self._rules, self._clock = rules, clock
        self._reopens = timedelta(days=reopen_days)
        self._turn = asyncio.Lock()
        self.has_rules = rules.delete_runs

    async def keep(self) -> NoReturn:
        await asyncio.sleep(FIRST_LOOK_S)
        while True:
            try:
                await self.prune()
            except TryAgain as error:
                log.warning("expired runs could not be deleted", extra={"why": str(error)})
            await asyncio.sleep(LOOK_S)

    async def prune(self, within_s: float | None = None, *, rest: float = REST_S) -> PruneReport:
        """Runs one pass, and pauses `rest` times the duration of each step. `within_s`: limit in seconds."""
        pruned, loop = PruneReport(), asyncio.get_running_loop()
        async with self._turn:
            with self._store.database.making_room():
                began = stepped = loop.time()
                async for _ in self._steps(pruned):
                    if within_s is not None and loop.time() - began > within_s:
                        pruned.more = True
                        break
                    await asyncio.sleep(min(MOST_REST_S, rest * (loop.time() - stepped)))
                    stepped = loop.time()
        for rule, runs in (*pruned.runs.items(), *pruned.artifacts.items()):
            log.info("expired runs were deleted", extra={"runs": runs, "rule": rule})
        return pruned

    async def preview(self) -> PruneReport:
        report, gone = PruneReport(), Gone(set)
        async for rule, runs, artifacts_only in self._due(gone):
            new = [run for run in runs if run.run_id not in gone[False]]
            gone[artifacts_only].update(run.run_id for run in new)
            report.add(rule, new, artifacts_only=artifacts_only)
        return report

    async def _steps(self, pruned: PruneReport) -> AsyncIterator[None]:
        while not pruned.trouble and (leftovers := await self._records.leftovers(AT_ONCE)):
            await self._clear(leftovers, pruned)
            yield
        gone = Gone(set)
        async for rule, runs, artifacts_only in self._due(gone):
            leftovers = await self._records.delete(runs, rule, self._clock.now(), artifacts_only=artifacts_only)
            await self._clear(leftovers, pruned)
            deleted = {one.run_id for one in leftovers}
            gone[artifacts_only] |= deleted
            pruned.add(rule, [run for run in runs if run.run_id in deleted], artifacts_only=artifacts_only)
            yield
        while await self._store.database.shrink():
            yield

    async def _clear(self, leftovers: Sequence[Leftovers], pruned: PruneReport) -> None:
        if not leftovers or pruned.trouble:
            return
        try:
            await self._remove_files(leftovers)
        except TryAgain as error:
            pruned.trouble = f"files of runs that are gone are still there: {error}"
            log.warning("files of deleted runs could not be deleted", extra={"why": str(error)})
        else:
            await self._records.mark_cleared(leftovers)

    async def _remove_files(self, gone: Sequence[Leftovers]) -> None:
        """Removes files durably, and local folders first."""
        deleted = [one.run_id for one in gone if one.folder]
        async with self._at_rest(deleted):
            await _on_disk(self._workspace.remove, *deleted)
            await _on_disk(self._workspace.remove_artifacts, *(one.run_id for one in gone if not one.folder))
        for one in gone:
            for path in one.artifacts:
                await self._artifacts.remove(one.run_id, path)

    async def _due(self, gone: Gone) -> AsyncIterator[tuple[str, Sequence[EndedRun], bool]]:
        """Rule, expired runs, and True if only their artifacts go: by days, then by bytes. `gone`: those of them that
        the caller has deleted, or would."""
        now = self._clock.now()
        for what, (kept, rule) in self._rules.by_days.items():
            before, artifacts = now - kept, what == "artifacts"
            statuses = FINAL if artifacts else frozenset({Status(what)})
            escalated = min(before, now - self._reopens) if artifacts else before
            wanted = ExpiryFilter(
                statuses=statuses, before=before, escalated_before=escalated, with_artifacts=artifacts
            )
            async for some in self._expired(wanted):
                yield rule, some, artifacts
        for kind, (most, rule) in self._rules.by_bytes.items():
            async for some in self._beyond(kind, most, now, gone):
                yield rule, some, False

    async def _beyond(self, kind: Kind, most: int, now: datetime, gone: Gone) -> AsyncIterator[Sequence[EndedRun]]:
        """The oldest runs that have to go so that no more than `most` bytes are left."""
        sizes: Mapping[str, int] | None = None
        if kind != "journal":
            sizes = await (self._artifacts.sizes() if kind == "artifacts" else _on_disk(self._workspace.sizes))
        excess = (await self._store.total_bytes() if sizes is None else sum(sizes.values())) - most
        before = gone[False] | (gone[True] if kind == "artifacts" else set())
        freed = await self._records.sizes([*before]) if sizes is None else sizes
        excess -= sum(freed.get(run_id, 0) for run_id in before)
        if excess <= 0:
            return
        ended = ExpiryFilter(statuses=FINAL, before=now, escalated_before=now - self._reopens)
        async for some in self._expired(ended):
            taken = await self._records.sizes([run.run_id for run in some]) if sizes is None else sizes
            expired, left = [], excess
            for run in some:
                if left > 0 and taken.get(run.run_id) and run.run_id not in before:
                    expired.append(run)
                    left -= taken[run.run_id]
            yield expired
            excess -= sum(taken[run.run_id] for run in expired if run.run_id in gone[False])
            if excess <= 0:
                return

    async def _expired(self, wanted: ExpiryFilter) -> AsyncIterator[Sequence[EndedRun]]:
        last: EndedRun | None = None
        while found := await self._records.expired(wanted, last, AT_ONCE):
            yield found
            last = found[-1]


async def _on_disk(work: Callable[..., T], *arguments: str) -> T:
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise TryAgain(f"the folders of runs cannot be removed or measured: {error}") from error
