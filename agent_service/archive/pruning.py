"""Deletes expired runs in small steps.

    left by an earlier pass ─▶ expired runs ─▶ expired artifacts ─▶ oldest runs over a size limit ─▶ room given back

Open runs stay, and those that an open run needs. A step takes milliseconds; a pause several times as long follows.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from agent_service.archive.retention import (
    EndedRun,
    ExpiredBatch,
    ExpiryCursor,
    ExpiryFilter,
    KeepRunsSettings,
    Kind,
    Leftovers,
    PruneReport,
)
from agent_service.core.waiting import FINAL, Status
from agent_service.run.ports import Clock
from agent_service.store.records import RetentionRecords
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import TryAgain

LOOK_S = 3600.0
FIRST_LOOK_S = 60.0
AT_ONCE = 20
"""Runs of a step: some five milliseconds of the writer."""
LOOKED_UP = 500
REST_S, MOST_REST_S = 9.0, 2.0
"""How long a pass rests after a step, in times of the step; and at most, in seconds."""

log = logging.getLogger(__name__)


class RemovableArtifacts(Protocol):
    """The bucket. All methods raise TryAgain."""

    async def remove(self, run_id: str, path: str) -> None: ...

    async def sizes(self) -> Mapping[str, int]: ...


T = TypeVar("T")
AtRest = Callable[[Collection[str]], AbstractAsyncContextManager[Any]]


class RunFiles:
    """What runs have beside the store: folders, and artifacts on the bus. `at_rest`: inside, no folder is written, and
    none of these runs later."""

    def __init__(self, workspaces: Path, artifacts: RemovableArtifacts, at_rest: AtRest = nullcontext) -> None:
        self._workspace, self._artifacts, self._at_rest = Workspace(workspaces), artifacts, at_rest

    async def remove(self, gone: Sequence[Leftovers]) -> None:
        """Durably, folders first: they are here. Raises TryAgain."""
        whole = [one.run_id for one in gone if one.folder]
        async with self._at_rest(whole):
            await self._on_disk(self._workspace.remove, *whole)
            await self._on_disk(self._workspace.remove_artifacts, *(one.run_id for one in gone if not one.folder))
        for one in gone:
            for path in one.artifacts:
                await self._artifacts.remove(one.run_id, path)

    async def sizes(self, kind: Kind) -> Mapping[str, int]:
        return await (self._artifacts.sizes() if kind == "artifacts" else self._on_disk(self._workspace.sizes))

    async def _on_disk(self, work: Callable[..., T], *arguments: str) -> T:
        try:
            return await asyncio.to_thread(work, *arguments)
        except OSError as error:
            raise TryAgain(f"the folders of runs cannot be removed or measured: {error}") from error


class Pruner:
    """Of one store. One pass at a time."""

    def __init__(
        self, store: RetentionRecords, belongings: RunFiles, rules: KeepRunsSettings, reopen_days: float, clock: Clock
    ) -> None:
        """`reopen_days`: how long an escalation may be answered."""
        self._store, self._belongings, self._rules, self._clock = store, belongings, rules, clock
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
        """Rest `rest` times as long as work; `within_s` seconds at most."""
        pruned = PruneReport()
        async with self._turn:
            with self._store.making_room():
                await self._pass(pruned, within_s, rest=rest)
        for rule, runs in (*pruned.runs.items(), *pruned.artifacts.items()):
            log.info("expired runs were deleted", extra={"runs": runs, "rule": rule})
        return pruned

    async def _pass(self, pruned: PruneReport, within_s: float | None, *, rest: float) -> None:
        loop = asyncio.get_running_loop()
        began = stepped = loop.time()
        async for going in self._steps(pruned):
            if going.runs:
                pruned.add(going)
            if within_s is not None and loop.time() - began > within_s:
                pruned.more = True
                break
            await asyncio.sleep(min(MOST_REST_S, rest * (loop.time() - stepped)))
            stepped = loop.time()

    async def preview(self) -> PruneReport:
        would, known = PruneReport(), set[str]()
        async for going in self._due():
            new = tuple(run for run in going.runs if run.run_id not in known)
            known.update(run.run_id for run in new if not going.artifacts)
            would.add(ExpiredBatch(rule=going.rule, runs=new, artifacts=going.artifacts))
        return would

    async def _steps(self, pruned: PruneReport) -> AsyncIterator[ExpiredBatch]:
        nothing = ExpiredBatch(rule="", runs=())
        while not pruned.trouble and (behind := await self._store.leftovers(LOOKED_UP)):
            await self._clear(behind, pruned)
            yield nothing
        async for going in self._due():
            now, artifacts_only = self._clock.now(), going.artifacts
            behind = await self._store.delete(going.runs, going.rule, now, artifacts_only=artifacts_only)
            await self._clear(behind, pruned)
            gone = {one.run_id for one in behind}
            yield ExpiredBatch(
                rule=going.rule,
                runs=tuple(run for run in going.runs if run.run_id in gone),
                artifacts=going.artifacts,
            )
        while await self._store.shrink():
            yield nothing

    async def _clear(self, behind: Sequence[Leftovers], pruned: PruneReport) -> None:
        if not behind or pruned.trouble:
            return
        try:
            await self._belongings.remove(behind)
        except TryAgain as error:
            pruned.trouble = f"files of runs that are gone are still there: {error}"
            log.warning("files of deleted runs could not be deleted", extra={"why": str(error)})
        else:
            await self._store.mark_cleared(behind)

    async def _due(self) -> AsyncIterator[ExpiredBatch]:
        """What is to go, a few runs at a time: by days, then by bytes."""
        now = self._clock.now()
        for what, (kept, rule) in self._rules.by_days.items():
            before, artifacts = now - kept, what == "artifacts"
            over = self._over(before, now, with_artifacts=True) if artifacts else _ended_as(Status(what), before)
            async for some in self._ended(over):
                yield ExpiredBatch(rule=rule, runs=some, artifacts=artifacts)
        for kind, (most, rule) in self._rules.by_bytes.items():
            async for some in self._beyond(kind, most, now):
                yield ExpiredBatch(rule=rule, runs=some)

    async def _beyond(self, kind: Kind, most: int, now: datetime) -> AsyncIterator[tuple[EndedRun, ...]]:
        """The oldest runs, until no more than `most` bytes are left."""
        sizes = await self._belongings.sizes(kind) if kind != "journal" else None
        excess = (await self._store.total_bytes() if sizes is None else sum(sizes.values())) - most
        if excess <= 0:
            return
        async for some in self._ended(self._over(now, now)):
            taken = await self._store.sizes([run.run_id for run in some]) if sizes is None else sizes
            going = []
            for run in some:
                if excess > 0 and taken.get(run.run_id):
                    going.append(run)
                    excess -= taken[run.run_id]
            yield tuple(going)
            if excess <= 0:
                return

    def _over(self, before: datetime, now: datetime, *, with_artifacts: bool = False) -> ExpiryFilter:
        escalated_before = min(before, now - self._reopens)
        return ExpiryFilter(
            statuses=FINAL, before=before, escalated_before=escalated_before, with_artifacts=with_artifacts
        )

    async def _ended(self, over: ExpiryFilter) -> AsyncIterator[tuple[EndedRun, ...]]:
        place: ExpiryCursor = None
        while found := await self._store.expired(over, place, LOOKED_UP):
            for at in range(0, len(found), AT_ONCE):
                yield tuple(found[at : at + AT_ONCE])
            place = found[-1].at, found[-1].run_id


def _ended_as(status: Status, before: datetime) -> ExpiryFilter:
    return ExpiryFilter(statuses=frozenset({status}), before=before, escalated_before=before)
