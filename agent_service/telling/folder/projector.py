"""Keeps the workspace in step with the journal: a commit marks its run; the `Writer` process renders in batches.

Marks are in memory: at the next start, runs that moved since the workspace was last complete are caught up. What fails
(full disk) is tried again later.
"""

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from agent_service.errors import Damaged
from agent_service.run.ports import Artifacts
from agent_service.telling.folder.copies import fetched
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.outputs import NamedArtifact
from groundwork.service.machine import monotonic

MAX_BATCH = 64
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0

log = logging.getLogger(__name__)

OnDamage = Callable[[Damaged], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`missing`: artifacts that the folder lacks. `why`: empty where the pages match the journal; with `lasting` a
    retry would fail too. `damaged`: what of the journal cannot be read.
    """

    missing: tuple[NamedArtifact, ...] = ()
    why: str = ""
    lasting: bool = False
    damaged: str = ""


class Writer(Protocol):
    async def write(self, run_ids: Collection[str]) -> Mapping[str, Outcome]:
        """What became of each run."""


class Projector:
    """Live runs are written after `live_s` seconds, ended ones after `soon_s`."""

    def __init__(
        self,
        writer: Writer,
        workspace: Workspace,
        artifacts: Artifacts,
        *,
        live_s: float = 3.0,
        soon_s: float = 0.2,
        on_damage: OnDamage = lambda _: None,
    ) -> None:
        self._writer = writer
        self._workspace = workspace
        self._artifacts = artifacts
        self._live_s = live_s
        self._soon_s = soon_s
        self._on_damage = on_damage
        self._marks = Marks()
        self._turn = asyncio.Lock()

    def moved(self, run_id: str, *, ended: bool) -> None:
        self._marks.mark(run_id, self._soon_s if ended else self._live_s)

    def catch_up(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self.moved(run_id, ended=True)

    async def run(self) -> None:
        while True:
            await self._marks.wait()
            await asyncio.sleep(self._soon_s)
            async with self._turn:
                while due := self._marks.take(MAX_BATCH):
                    await self._write(due)
                await self._note_caught_up()

    async def write(self, run_id: str) -> str:
        async with self._turn:
            return await self._completed(run_id, (await self._writer.write((run_id,)))[run_id])

    @asynccontextmanager
    async def at_rest(self, forgotten: Collection[str]) -> AsyncIterator[None]:
        """Inside, nothing is written, and the `forgotten` runs are dropped."""
        async with self._turn:
            self._marks.drop(forgotten)
            yield

    async def flush(self) -> None:
        async with self._turn:
            left = self._marks.take_all()
            while left:
                batch, left = left[:MAX_BATCH], left[MAX_BATCH:]
                await self._write(batch, left)
            await self._note_caught_up()

    async def _write(self, run_ids: Collection[str], not_yet: Collection[str] = ()) -> None:
        try:
            outcomes = await self._writer.write(run_ids)
            failed = {run_id: why for run_id in run_ids if (why := await self._completed(run_id, outcomes[run_id]))}
        except asyncio.CancelledError:
            for run_id in (*run_ids, *not_yet):
                self._marks.mark(run_id, 0.0)
            raise
        self._marks.settled([run_id for run_id in run_ids if run_id not in failed])
        if failed:
            within_s = self._marks.failed(failed)
            run_id, why = next(iter(failed.items()))
            facts = {"run_id": run_id, "runs": len(failed), "within_s": within_s, "why": why}
            log.error("workspace not written, tried again", extra=facts)

    async def _completed(self, run_id: str, outcome: Outcome) -> str:
        if outcome.lasting:
            if outcome.damaged:
                self._on_damage(Damaged(run_id, outcome.damaged))
            log.error("workspace not written, given up", extra={"run_id": run_id, "why": outcome.why})
            return ""
        if not outcome.missing:
            return outcome.why
        try:
            copies = await fetched(self._artifacts, run_id, outcome.missing)
            failed = await asyncio.to_thread(self._workspace.write, [(run_id, copies)] if copies else [])
        except Exception as error:  # noqa: BLE001 - to show runs must never stop them
            return repr(error)
        return repr(failed[run_id]) if failed else ""

    async def _note_caught_up(self) -> None:
        if self._marks.failures == 0:
            await asyncio.to_thread(self._workspace.note_caught_up)


class Marks:
    """Run ids with due instants (monotonic, in seconds); the earlier counts. Failed runs wait longer each time."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._any = asyncio.Event()

    @property
    def failures(self) -> int:
        return len(self._failures)

    def mark(self, run_id: str, delay_s: float) -> None:
        due = monotonic() + delay_s
        self._due[run_id] = min(due, self._due.get(run_id, due))
        self._any.set()

    async def wait(self) -> None:
        await self._any.wait()

    def take(self, limit: int) -> list[str]:
        """Unmarks and returns up to `limit` due runs, longest due first."""
        now = monotonic()
        due = heapq.nsmallest(limit, ((at, run_id) for run_id, at in self._due.items() if at <= now))
        return self._taken([run_id for _, run_id in due])

    def take_all(self) -> list[str]:
        return self._taken(sorted(self._due, key=self._due.__getitem__))

    def failed(self, run_ids: Collection[str]) -> float:
        longest = 0.0
        for run_id in run_ids:
            failures = self._failures[run_id] = self._failures.get(run_id, 0) + 1
            delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 10))
            self.mark(run_id, delay_s)
            longest = max(longest, delay_s)
        return longest

    def drop(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._due.pop(run_id, None)
            self._failures.pop(run_id, None)
        if not self._due:
            self._any.clear()

    def settled(self, run_ids: Collection[str]) -> None:
        for run_id in run_ids:
            self._failures.pop(run_id, None)

    def _taken(self, run_ids: list[str]) -> list[str]:
        for run_id in run_ids:
            del self._due[run_id]
        if not self._due:
            self._any.clear()
        return run_ids
