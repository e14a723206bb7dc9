"""Renders the folders of runs from their stored entries, with copies of their artifacts.

    the run ends or rests     soon, one run after another
    its files are read        first, if the folder is stale
    the run goes on           after some seconds without a new entry

The queue is in memory: after a crash a folder is rendered when it is read. An error of rendering fails no turn; it is
retried, or raised to the next reader.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from itertools import islice
from operator import itemgetter

from agent_service.core.state import RunState
from agent_service.errors import Damaged, Tampered
from agent_service.history.results import RecordedArtifact, kept_artifacts
from agent_service.run.journal import Commit, Entry, flaw_in_chain
from agent_service.run.ports import ArtifactReader
from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import MAX_BYTES, FileList, TooLarge, Unsafe, Workspace
from groundwork.service.errors import TryAgain
from groundwork.service.json_log import Outage
from groundwork.service.machine import set_within, this, utc_now
from groundwork.service.program import loaded
from schemas.values import dataclass

SOON_S = 0.2
LATER_S = 3.0
"""Delay after the newest entry of a live run, and before another attempt."""
REST, MOST_REST_S = 19.0, 2.0
"""Pause after each run: this multiple of its time, but at most so many seconds. Rendering takes 5 % of a CPU."""
FLUSH_S = 5.0
REMEMBERED_RUNS = 1024
MOST_DUE = 100_000
"""Bound of the queue; runs beyond are rendered when they are read."""
REMOVED_AT_ONCE = 500
MAX_ARTIFACTS, MAX_TOTAL = 100, 4 * MAX_BYTES
"""Number and bytes of the copies for one run."""

log = logging.getLogger(__name__)


class ArtifactChanged(Exception):
    """The stored artifact is not the one that the journal recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`artifacts` are those with a legal name, by path; `version` is the number of the newest entry."""

    artifacts: dict[str, RecordedArtifact]
    ended: bool
    version: int


async def write(run_id: str, store: RunStore, workspace: Workspace, artifacts: ArtifactReader) -> Rendered | None:
    """Writes the files that differ, in a thread; None for a run without entries, also one that is deleted meanwhile.
    Raises Tampered for a broken chain, Damaged, and what `Workspace.write` and the ports raise.
    """
    run = await store.load(run_id)
    entries = await store.entries(run_id, limit=run.state.version) if run else ()
    if run is None or not entries:
        return None
    rendered, missing = await asyncio.to_thread(_write_pages, run.state, entries, workspace)
    room = MAX_TOTAL
    for artifact in missing:
        room -= await _copy(run_id, artifact, workspace, artifacts, most=min(MAX_BYTES, room))
    return rendered


def _write_pages(
    run: RunState, entries: Sequence[Entry], workspace: Workspace
) -> tuple[Rendered, list[RecordedArtifact]]:
    if flaw := flaw_in_chain(entries):
        raise Tampered(run.run_id, flaw)
    records = [entry.record() for entry in entries]
    pages = loaded("agent_service.views.pages:pages")(run, records)
    workspace.write(run.run_id, {name: text.encode() for name, text in pages.items()})
    named = kept_artifacts(records)
    missing = [one for one in [*named.values()][:MAX_ARTIFACTS] if not _is_copied(workspace, run, one)]
    return Rendered(artifacts=named, ended=run.final, version=len(records)), missing


def _is_copied(workspace: Workspace, run: RunState, artifact: RecordedArtifact) -> bool:
    """At the end of the run, an artifact without a hash is copied again: it may have changed."""
    with suppress(Unsafe, TooLarge):
        copy = workspace.read(run.run_id, artifact.path)
        return artifact.is_brought_by(copy) and not (run.final and artifact.sha256 is None)
    return False


async def _copy(
    run_id: str, artifact: RecordedArtifact, workspace: Workspace, artifacts: ArtifactReader, *, most: int
) -> int:
    """Bytes copied. Raises as `Workspace.write` and the port do."""
    content = None if (artifact.size or 0) > most else await artifacts.get(run_id, artifact.path)
    if content is not None and len(content) <= most and await asyncio.to_thread(artifact.is_brought_by, content):
        await asyncio.to_thread(workspace.write, run_id, {artifact.path: content})
        return len(content)
    why = "another was stored under its name" if content is not None else f"it is gone, or has more than {most} bytes"
    log.warning("artifact not copied", extra={"run_id": run_id, "path": artifact.path, "why": why})
    return 0


@dataclass(slots=True)
class Folders:
    """`keep` is the number of ended runs whose pages stay. A run is skipped if as many ended after it before its turn,
    unless it has artifacts to copy.
    """

    store: RunStore
    workspace: Workspace
    artifacts: ArtifactReader
    keep: int
    _now: Callable[[], float] = field(init=False, default_factory=lambda: this().monotonic)
    _due: dict[str, float] = field(init=False, default_factory=dict)
    """Instants at which runs are rendered (monotonic, in seconds); 0 for those that rest."""
    _ended: OrderedDict[str, bool] = field(init=False, default_factory=OrderedDict)
    """The runs that ended last, oldest first. True: their artifacts are not copied yet."""
    _surplus: dict[str, None] = field(init=False, default_factory=dict)
    """Runs that ended before them, whose pages are to be removed."""
    _rendered: OrderedDict[str, Rendered] = field(init=False, default_factory=OrderedDict)
    _news: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _outage: Outage = field(
        init=False, default_factory=lambda: Outage("the disk for files of runs, or what they are made of,", log)
    )

    def committed(self, change: Commit) -> None:
        run_id, rests = change.state.run_id, change.rests
        self._ended.pop(run_id, None)
        self._surplus.pop(run_id, None)
        if len(self._due) < MOST_DUE:
            self._due[run_id] = 0.0 if rests else self._now() + LATER_S
        if rests and change.state.final:
            self._note_ended(run_id, copies=bool(change.state.artifacts))
        self._news.set()

    def _note_ended(self, run_id: str, *, copies: bool) -> None:
        self._ended[run_id] = copies
        self._surplus.pop(run_id, None)
        while len(self._ended) > self.keep:
            oldest, uncopied = self._ended.popitem(last=False)
            self._surplus[oldest] = None
            if not uncopied:
                self._due.pop(oldest, None)

    async def refreshed(self, run_id: str) -> Rendered | None:
        """Renders the folder if it is stale; None for an unknown run. Raises Damaged, and TryAgain if a write fails."""
        run = await self.store.load(run_id)
        if run is None:
            return None
        try:
            if current := await self._current(run.state):  # does not wait until another run is rendered
                return current
            async with self._turn:
                if run.state.final and run_id not in self._ended:
                    self._note_ended(run_id, copies=False)
                return await self._current(run.state) or await self._render(run_id)
        except Damaged as error:
            self.store.quarantine(error)
            raise
        except OSError as error:
            raise TryAgain(
                f"the files of run {run_id} are not written: {error}; see `agentic doctor`, and ask again"
            ) from error

    async def _current(self, run: RunState) -> Rendered | None:
        known = self._rendered.get(run.run_id)
        if known is None or known.version < run.version:
            return None
        return known if await asyncio.to_thread(self.workspace.has_pages, run.run_id) else None

    async def files(self, run_id: str) -> FileList | None:
        """None for an unknown run. Raises as `refreshed` and Workspace.files."""
        if await self.refreshed(run_id) is None:
            return None
        return await asyncio.to_thread(self.workspace.files, run_id)

    async def read(self, run_id: str, path: str) -> bytes | None:
        """Reads an artifact from its store if the copy is missing or differs; None if there is none.

        Raises as `refreshed`, Workspace.read and the ports, and ArtifactChanged.
        """
        if (rendered := await self.refreshed(run_id)) is None:
            return None
        copy, named = await asyncio.to_thread(self.workspace.read, run_id, path), rendered.artifacts.get(path)
        if named is None or await asyncio.to_thread(named.is_brought_by, copy):
            return copy
        content = await self.artifacts.get(run_id, path) if (named.size or 0) <= MAX_BYTES else None
        if (content is None and copy is None) or await asyncio.to_thread(named.is_brought_by, content):
            return content
        raise ArtifactChanged(f"{path} of run {run_id} is not what entry {named.entry} of its journal recorded")

    async def run(self) -> None:
        with suppress(TryAgain, OSError):  # pages that are not found now stay
            unsettled = {*await self.store.changed_since(utc_now(), or_open=True)}
            found = [run_id for run_id in await asyncio.to_thread(self.workspace.runs) if run_id not in unsettled]
            self._ended = OrderedDict.fromkeys(found, False) | self._ended
        while True:
            await set_within(self._news, LATER_S if self._due else None)
            self._news.clear()
            await asyncio.sleep(SOON_S)
            while self._due:
                began = self._now()
                run_id, at = min(self._due.items(), key=itemgetter(1))
                if at > began:
                    break
                has_templates = bool(self._rendered)  # the first time, they are read and compiled
                await self._try_render(run_id)
                await asyncio.sleep(min(MOST_REST_S, REST * (self._now() - began)) if has_templates else 0)

    async def flush(self) -> None:
        """Renders queued runs for up to FLUSH_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                for run_id in sorted(self._due, key=self._due.__getitem__):
                    await self._try_render(run_id)

    @asynccontextmanager
    async def at_rest(self, deleted: Collection[str]) -> AsyncIterator[None]:
        """Keeps the folders untouched inside the context, and forgets the `deleted` runs."""
        async with self._turn:
            for run_id in deleted:
                self._due.pop(run_id, None)
                self._ended.pop(run_id, None)
            yield

    async def _try_render(self, run_id: str) -> None:
        self._due.pop(run_id, None)
        try:
            async with self._turn:
                await self._render(run_id)
        except Damaged as error:
            self.store.quarantine(error)
        except (ValueError, Unsafe) as error:
            log.error("files of a run are not written, given up", extra={"run_id": run_id, "why": repr(error)})  # noqa: TRY400 # no fault of this program
        except Exception as error:  # noqa: BLE001 - the other runs are rendered all the same
            self._outage.continues(repr(error))
            self._due[run_id] = self._now() + LATER_S
        else:
            self._outage.over()

    async def _render(self, run_id: str) -> Rendered | None:
        rendered = await write(run_id, self.store, self.workspace, self.artifacts)
        if rendered is None:
            return None
        self._rendered[run_id] = rendered
        self._rendered.move_to_end(run_id)
        if len(self._rendered) > REMEMBERED_RUNS:
            self._rendered.popitem(last=False)
        if rendered.ended:
            if run_id in self._ended:
                self._ended[run_id] = False
            else:
                self._surplus[run_id] = None
            surplus = [*islice(self._surplus, REMOVED_AT_ONCE)]
            for one in surplus:
                del self._surplus[one]
            try:
                await asyncio.to_thread(self.workspace.remove_pages, surplus)
            except OSError as error:
                log.warning("pages of ended runs are not removed", extra={"runs": len(surplus), "why": repr(error)})
        return rendered
