"""Decides when the folder of a run is rendered, always from its stored entries.

    the run ends, or rests for a person     soon, one run after another
    its files are read                      before that, where the folder is behind
    the run goes on                         every few seconds, while the agent has little to do

What is due is in memory: what a crash left behind is rendered when it is read. An error of rendering fails no turn:
it is tried again, or left to who reads.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Protocol

from agent_service.errors import Damaged
from agent_service.run.changes import ChangeRecord
from agent_service.run.ports import Artifacts
from agent_service.views.folder.disk import Unsafe
from agent_service.views.folder.rendering import Rendered, Runs, write
from agent_service.views.folder.workspace import MAX_BYTES, Listing, Workspace
from groundwork.service.errors import TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import monotonic, utc_now

SOON_S = 0.2
LATER_S = 3.0
"""A live run is rendered so long after it moved, at the earliest; what failed, too."""
LOOK_S, MOST_COMMITS = 1.0, 20
"""The agent has little to do while it commits no more entries in so long."""
REST, BUSY_REST, MOST_REST_S = 9.0, 49.0, 2.0
"""The pause after each run, in times of what it took, with little and with much to do; and at most, in seconds."""
FLUSH_S = 5.0
REMEMBERED_RUNS = 1024
MOST_DUE, MOST_LATER = 100_000, 10_000
"""Runs that are marked, and those for idle time: others are rendered when they are read."""
PUT_AWAY_AT_ONCE = 500

log = logging.getLogger(__name__)


class Store(Runs, Protocol):
    async def unsettled(self, since: datetime) -> Sequence[str]:
        """Runs that have not ended, and those with an entry at or after `since`."""

    def quarantine(self, found: Damaged) -> None: ...


class ArtifactChanged(Exception):
    """What is stored under the artifact's name is not what the journal recorded."""


class Folders:
    """`keep`: of how many ended runs the pages stay. A run that ended is not rendered at all, unless it has artifacts
    to be copied, once so many have ended after it.
    """

    def __init__(self, store: Store, workspace: Workspace, artifacts: Artifacts, *, keep: int) -> None:
        self._store = store
        self._workspace = workspace
        self._artifacts = artifacts
        self._keep = keep
        self._due: dict[str, None] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._later: dict[str, float] = {}
        """Due instants (monotonic, in seconds) of live runs, and of those that failed; earliest first."""
        self._rendered: OrderedDict[str, Rendered] = OrderedDict()
        self._lying: dict[str, None] = {}
        """Ended runs whose pages lie in their folders, oldest first."""
        self._commits, self._looked_at, self._idle = 0, monotonic(), False
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._outage = Outage("the disk for files of runs, or what they are made of,", log)

    def committed(self, change: ChangeRecord) -> None:
        run, ended = change.after, change.ended
        self._commits += 1
        if ended and not run.artifacts:
            self._mark_ended(run.run_id)
        elif (ended or change.paused) and len(self._due) < MOST_DUE:
            self._due[run.run_id] = None
        elif run.run_id not in self._later:
            self._mark_later(run.run_id, monotonic() + LATER_S)
        self._news.set()

    async def up_to_date(self, run_id: str) -> Rendered | None:
        """For who reads. None without such a run. Raises Damaged, and TryAgain where it cannot be written now."""
        async with self._turn:
            run = await self._store.load(run_id)
            if run is None:
                return None
            known = self._rendered.get(run_id)
            try:
                lies = await asyncio.to_thread(self._workspace.has_pages, run_id)
                if known and lies and known.version == run.state.version:
                    return known
                return await self._render(run_id)
            except Damaged as error:
                self._store.quarantine(error)
                raise
            except OSError as error:
                raise TryAgain(f"the files of run {run_id} are not written: {error!r}; ask again") from error

    async def files(self, run_id: str) -> Listing | None:
        """Raises as `up_to_date` and Workspace.files."""
        await self.up_to_date(run_id)
        return await asyncio.to_thread(self._workspace.files, run_id)

    async def read(self, run_id: str, path: str) -> bytes | None:
        """An artifact that is not as its copy here should be comes from its store. None where there is none.

        Raises as `up_to_date`, Workspace.read and the ports, and ArtifactChanged.
        """
        rendered = await self.up_to_date(run_id)
        copy = await asyncio.to_thread(self._workspace.read, run_id, path)
        named = rendered.artifact(path) if rendered else None
        if named is None or (copy is not None and named.is_brought_by(copy)):
            return copy
        content = await self._artifacts.get(run_id, path) if (named.size or 0) <= MAX_BYTES else None
        if content is not None and named.is_brought_by(content):
            return content
        if content is None and copy is None:
            return None
        raise ArtifactChanged(f"{path} of run {run_id} is not what entry {named.entry} of its journal recorded")

    async def run(self) -> None:
        """Until cancelled."""
        await self._begin()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._later else None):
                    await self._news.wait()
            self._news.clear()
            await asyncio.sleep(SOON_S)
            while (run_id := self._next()) is not None:
                began = monotonic()
                await self._tried(run_id)
                rest = REST if self._is_idle() else BUSY_REST
                await asyncio.sleep(min(MOST_REST_S, rest * (monotonic() - began)))

    async def flush(self) -> None:
        """Renders what is marked, FLUSH_S at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                for run_id in (*self._due, *self._ended, *self._later):
                    await self._tried(run_id)

    @asynccontextmanager
    async def at_rest(self, forgotten: Collection[str]) -> AsyncIterator[None]:
        """Inside, nothing is written, and the `forgotten` runs are dropped."""
        async with self._turn:
            for run_id in forgotten:
                self._unmark(run_id)
                self._lying.pop(run_id, None)
            yield

    async def _begin(self) -> None:
        with suppress(TryAgain, OSError):  # pages that are not known here stay
            going_on, lying = await self._store.unsettled(utc_now()), await asyncio.to_thread(self._workspace.runs)
            self._lying = dict.fromkeys(run_id for run_id in lying if run_id not in {*going_on}) | self._lying

    def _mark_ended(self, run_id: str) -> None:
        self._unmark(run_id)
        self._ended[run_id] = None
        if len(self._ended) > self._keep:
            self._ended.popitem(last=False)

    def _mark_later(self, run_id: str, at: float) -> None:
        if len(self._later) < MOST_LATER and run_id not in self._due:
            self._later.setdefault(run_id, at)

    def _unmark(self, run_id: str) -> None:
        for marks in (self._due, self._ended, self._later):
            marks.pop(run_id, None)

    def _next(self) -> str | None:
        if run_id := next(iter(self._due), None) or next(iter(self._ended), None):
            return run_id
        first, at = next(iter(self._later.items()), (None, 0.0))
        return first if self._is_idle() and at <= monotonic() else None

    def _is_idle(self) -> bool:
        passed_s = monotonic() - self._looked_at
        if passed_s >= LOOK_S:
            self._idle = self._commits <= MOST_COMMITS * passed_s / LOOK_S
            self._commits, self._looked_at = 0, monotonic()
        return self._idle

    async def _tried(self, run_id: str) -> None:
        self._unmark(run_id)
        try:
            async with self._turn:
                await self._render(run_id)
        except Damaged as error:
            self._store.quarantine(error)
        except (ValueError, Unsafe) as error:
            log.error("files of a run are not written, given up", extra={"run_id": run_id, "why": repr(error)})  # noqa: TRY400 # no fault of this program
        except Exception as error:  # noqa: BLE001 - whatever it is, the other runs are to be rendered
            self._outage.goes_on(repr(error))
            self._mark_later(run_id, monotonic() + LATER_S)
        else:
            self._outage.over()

    async def _render(self, run_id: str) -> Rendered | None:
        rendered = await write(run_id, self._store, self._workspace, self._artifacts)
        if rendered is None:
            return None
        self._rendered[run_id] = rendered
        self._rendered.move_to_end(run_id)
        if len(self._rendered) > REMEMBERED_RUNS:
            self._rendered.popitem(last=False)
        self._lying.pop(run_id, None)
        if rendered.ended:
            self._lying[run_id] = None
            await self._put_away(list(self._lying)[: -self._keep][:PUT_AWAY_AT_ONCE])
        return rendered

    async def _put_away(self, surplus: Collection[str]) -> None:
        for run_id in surplus:
            del self._lying[run_id]
        try:
            await asyncio.to_thread(self._workspace.put_away, surplus)
        except OSError as error:
            log.warning("pages of ended runs are not put away", extra={"runs": len(surplus), "why": repr(error)})
