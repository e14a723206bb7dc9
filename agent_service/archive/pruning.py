"""Deletes expired runs in small steps.

    leftovers of an earlier pass ─▶ expired runs ─▶ expired artifacts ─▶ oldest runs over a size limit ─▶ file shrunk

    expired run ─▶ tombstone ─▶ each process removes the run's files ─▶ marked as cleared, messages purged

Open runs stay, those that an open run needs, and those that cannot be read. A step takes milliseconds, and the pause
after it several times that. The next pass of any process removes what a crash left.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, TypeVar

from agent_service.archive.retention import ArtifactTombstone, EndedRun, KeepRunsSettings, Kind, PruneReport, Tombstone
from agent_service.core.waiting import FINAL, Status
from agent_service.errors import Damaged, NewerVersion
from agent_service.run.ports import Clock
from agent_service.store.database import load_queries, value_of
from agent_service.store.messages import LEVEL, ArtifactTombstoneRecord, TombstoneRecord
from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import microseconds
from schemas.values import dataclass

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
Gone = defaultdict[bool, dict[str, int]]
"""Runs that went, with the bytes of their journals that are still counted; by True, those that lost only artifacts."""
AtRest = Callable[[Collection[str]], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Files that may be left of a deleted run: artifacts, and its folder unless only artifacts were deleted."""

    run_id: str
    artifacts: tuple[str, ...]
    folder: bool


async def expired_runs(
    store: RunStore,
    statuses: Iterable[Status],
    before: datetime,
    escalated_before: datetime,
    *,
    with_artifacts: bool = False,
) -> AsyncIterator[Sequence[EndedRun]]:
    """Ended runs of these statuses whose newest entry is older than `before`; of escalated ones, also than
    `escalated_before`. Some at a time, the oldest first."""
    of, bounds = json.dumps([*statuses]), (microseconds(before), microseconds(escalated_before))
    since, run_id, sql = 0, "", load_queries()["expired"]
    while rows := await store.database.read(sql, (of, *bounds, since, run_id, with_artifacts, AT_ONCE)):
        yield [value_of(EndedRun, row) for row in rows]
        run_id, *_, since, _ = rows[-1]


async def delete_runs(
    store: RunStore, runs: Sequence[EndedRun], rule: str, now: datetime, *, artifacts_only: bool = False
) -> set[str]:
    """Leaves tombstones, and returns the ids of the runs that went: none that has a newer entry, cannot be read, or is
    deleted by another process."""
    records = list[TombstoneRecord | ArtifactTombstoneRecord]()
    for run in runs:
        loaded = None
        with suppress(Damaged, NewerVersion):
            loaded = await store.load(run.run_id)
        if loaded is None or loaded.state.version != run.version:
            continue
        artifacts = loaded.state.artifacts
        if artifacts_only:
            gone = ArtifactTombstone(run_id=run.run_id, gone_at=now, rule=rule)
            records.append(ArtifactTombstoneRecord(v=LEVEL, gone=gone, artifacts=artifacts))
        else:
            for row in store.database.look_up(load_queries()["going"], (run.run_id, run.version)):
                stone = value_of(Tombstone, (*row, microseconds(now), rule))
                records.append(TombstoneRecord(v=LEVEL, stone=stone, version=run.version, artifacts=artifacts))
    stored = {record.run_id for record in await store.put(*records, after=0)}
    return {run_id for run_id in stored if artifacts_only or not store.version(run_id)}


async def leftovers(store: RunStore, limit: int) -> list[Leftovers]:
    rows = await store.database.read(load_queries()["behind"], (limit,))
    return [Leftovers(run_id, tuple(json.loads(artifacts)), bool(folder)) for run_id, artifacts, folder in rows]


async def mark_cleared(store: RunStore, removed: Sequence[Leftovers]) -> None:
    sql = load_queries()
    for one in removed:
        if one.folder and (stone := await store.tombstone(one.run_id)):
            await store.purge(stone.wake_id, one.run_id)
    done = [(sql["cleared" if one.folder else "artifacts_cleared"], (one.run_id,)) for one in removed]
    await store.database.write(lambda connection: [connection.execute(*one) for one in done], makes_room=True)


@dataclass(slots=True)
class Pruner:
    """`workspace`: the folders of runs. `at_rest`: a context in which none is written, and after which none of these
    runs is. `reopen_days`: days in which an escalation may be answered."""

    store: RunStore
    workspace: Workspace
    artifacts: RemovableArtifacts
    rules: KeepRunsSettings
    reopen_days: float
    clock: Clock
    at_rest: AtRest = nullcontext
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

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
            with self.store.database.making_room():
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
        report, gone = PruneReport(), Gone(dict)
        async for rule, runs, artifacts_only in self._due(gone):
            new = [run for run in runs if run.run_id not in gone[False]]
            gone[artifacts_only].update((run.run_id, run.size) for run in new)
            report.add(rule, new, artifacts_only=artifacts_only)
        return report

    async def _steps(self, pruned: PruneReport) -> AsyncIterator[None]:
        while await self._clear(pruned):
            yield
        gone = Gone(dict)
        async for rule, runs, artifacts_only in self._due(gone):
            deleted = await delete_runs(self.store, runs, rule, self.clock.now(), artifacts_only=artifacts_only)
            gone[artifacts_only].update(dict.fromkeys(deleted, 0))
            pruned.add(rule, [run for run in runs if run.run_id in deleted], artifacts_only=artifacts_only)
            while await self._clear(pruned):
                yield
            yield
        while await self.store.database.shrink():
            yield

    async def _clear(self, pruned: PruneReport) -> bool:
        """Removes some leftovers durably, local folders first. False if there are none, or they have to stay."""
        if pruned.trouble or not (left := await leftovers(self.store, AT_ONCE)):
            return False
        deleted = [one.run_id for one in left if one.folder]
        try:
            async with self.at_rest(deleted):
                await _on_disk(self.workspace.remove, *deleted)
                await _on_disk(self.workspace.remove_artifacts, *(one.run_id for one in left if not one.folder))
            for one in left:
                for path in one.artifacts:
                    await self.artifacts.remove(one.run_id, path)
        except TryAgain as error:
            pruned.trouble = f"files of runs that are gone are still there: {error}"
            log.warning("files of deleted runs could not be deleted", extra={"why": str(error)})
            return False
        await mark_cleared(self.store, left)
        return True

    async def _due(self, gone: Gone) -> AsyncIterator[tuple[str, Sequence[EndedRun], bool]]:
        """Rule, expired runs, and True if only their artifacts go: by days, then by bytes. `gone`: those of them that
        the caller has deleted, or would."""
        now = self.clock.now()
        for what, (kept, rule) in self.rules.by_days.items():
            before, artifacts = now - kept, what == "artifacts"
            statuses = FINAL if artifacts else frozenset({Status(what)})
            escalated = min(before, now - timedelta(days=self.reopen_days)) if artifacts else before
            async for some in expired_runs(self.store, statuses, before, escalated, with_artifacts=artifacts):
                yield rule, some, artifacts
        for kind, (most, rule) in self.rules.by_bytes.items():
            async for some in self._beyond(kind, most, now, gone):
                yield rule, some, False

    async def _beyond(self, kind: Kind, most: int, now: datetime, gone: Gone) -> AsyncIterator[Sequence[EndedRun]]:
        """The oldest runs that have to go so that no more than `most` bytes are left."""
        sizes: Mapping[str, int] | None = None
        if kind != "journal":
            sizes = await (self.artifacts.sizes() if kind == "artifacts" else _on_disk(self.workspace.sizes))
        excess = (await self.store.total_bytes() if sizes is None else sum(sizes.values())) - most
        before = gone[False] | (gone[True] if kind == "artifacts" else {})
        excess -= sum((before if sizes is None else sizes).get(run_id, 0) for run_id in before)
        if excess <= 0:
            return
        async for some in expired_runs(self.store, FINAL, now, now - timedelta(days=self.reopen_days)):
            taken = {run.run_id: run.size for run in some} if sizes is None else sizes
            chosen, left = list[EndedRun](), excess
            for run in some:
                if left > 0 and taken.get(run.run_id) and run.run_id not in before:
                    chosen.append(run)
                    left -= taken[run.run_id]
            yield chosen
            excess -= sum(taken[run.run_id] for run in chosen if run.run_id in gone[False])
            if excess <= 0:
                return


async def _on_disk(work: Callable[..., T], *arguments: str) -> T:
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise TryAgain(f"the folders of runs cannot be removed or measured: {error}") from error
