"""Writes the trails of given runs: their moments, the copies of their artifacts, their pages, all into the workspace.

One run that fails never stops the others. Rendering and file work happen in a thread, which lets go of the interpreter
after each entry and page, so that the event loop waits for one of them at most.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent_service.ports import Archive, Artifacts
from agent_service.telling.folder.copies import Copies
from agent_service.telling.folder.staging import Files
from agent_service.telling.folder.trail import pages_of
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.moments import Moment, recall, retell
from agent_service.telling.recollection import Recollection

LARGE_BYTES = 1 << 20
"""Artifacts of a run that are together larger are written on their own, not held until the batch is complete."""

Failures = dict[str, Exception]

_Telling = Callable[[], Iterator[Moment]]


@dataclass(frozen=True, slots=True)
class _Job:
    run_id: str
    moments: Sequence[Moment]
    copies: Files


class TrailWriter:
    """From the archive, or from what `recollection` still knows of it, into the workspace."""

    def __init__(
        self, archive: Archive, workspace: Workspace, artifacts: Artifacts, *, recollection: Recollection
    ) -> None:
        self._archive = archive
        self._workspace = workspace
        self._copies = Copies(artifacts, workspace)
        self._recollection = recollection

    async def write(self, run_ids: Collection[str]) -> Failures:
        """Write the runs; return those that are not written as the journal has them, by id. Unknown runs are none."""
        failed: Failures = {}
        try:
            tellings = {run_id: telling for run_id in run_ids if (telling := await self._telling(run_id, failed))}
            told = await asyncio.to_thread(_told, tellings, failed)
            jobs = [_Job(run_id, told[run_id], await self._copied(told[run_id], failed)) for run_id in told]
            failed |= await asyncio.to_thread(self._workspace.write, _rendered(jobs, failed))
        except Exception as error:  # noqa: BLE001 - to show runs must never stop them
            return failed | dict.fromkeys(run_ids, error)
        for job in jobs:
            if job.moments[-1].after.final and job.run_id not in failed:
                self._recollection.forget(job.run_id)
        return failed

    async def rebuild(self, run_id: str) -> None:
        """Delete the run's folder and write it from the journal; a run without entries has none.

        Raises IllegalName, OSError, ValueError for a journal that cannot be told, and what the ports raise.
        """
        entries = await self._archive.entries(run_id)
        moments = await asyncio.to_thread(lambda: tuple(retell(entries)))
        job = _Job(run_id, moments, await self._copies.of(moments))
        files = await asyncio.to_thread(_files, job) if moments else {}
        await asyncio.to_thread(self._workspace.remove, run_id)
        failed = await asyncio.to_thread(self._workspace.write, [(run_id, files)] if files else [])
        for error in failed.values():
            raise error

    async def _telling(self, run_id: str, failed: Failures) -> _Telling | None:
        """How to tell the run: what is remembered, or else what is read. Nothing is told yet."""
        known = self._recollection.of(run_id)
        if known:
            return partial(recall, known)
        try:
            return partial(retell, await self._archive.entries(run_id))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other runs are to be written
            failed[run_id] = error
            return None

    async def _copied(self, moments: Sequence[Moment], failed: Failures) -> Files:
        """The artifacts that the run's folder lacks. Its pages are written also when they cannot be had."""
        run_id = moments[-1].after.run_id
        try:
            copies = await self._copies.missing(moments)
            if sum(map(len, copies.values())) <= LARGE_BYTES:
                return copies
            failed |= await asyncio.to_thread(self._workspace.write, [(run_id, copies)])
        except Exception as error:  # noqa: BLE001 - same
            failed[run_id] = error
        return {}


def _told(tellings: Mapping[str, _Telling], failed: Failures) -> dict[str, Sequence[Moment]]:
    """The moments of the runs that have any."""
    told = {}
    for run_id, telling in tellings.items():
        try:
            told[run_id] = tuple(_without_hurry(telling()))
        except Exception as error:  # noqa: BLE001 - same
            failed[run_id] = error
    return {run_id: moments for run_id, moments in told.items() if moments}


def _without_hurry(moments: Iterator[Moment]) -> Iterator[Moment]:
    for moment in moments:
        yield moment
        _let_go()


def _rendered(jobs: Iterable[_Job], failed: Failures) -> Iterator[tuple[str, Files]]:
    for job in jobs:
        try:
            files = _files(job)
        except Exception as error:  # noqa: BLE001 - same
            failed[job.run_id] = error
        else:
            yield job.run_id, files


def _files(job: _Job) -> Files:
    files = dict(job.copies)
    for name, text in pages_of(job.moments):
        files[name] = text.encode()
        _let_go()
    return files


def _let_go() -> None:
    """Let the event loop's thread have the interpreter, which this one would keep for 5 ms."""
    time.sleep(0)
