"""Writes the pages of given runs into the workspace, from their journals."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from agent_service.errors import Changed, Damaged
from agent_service.run.journal import flaw_in_chain
from agent_service.run.moments import Journals, Moment, retell
from agent_service.run.ports import Artifacts
from agent_service.telling.folder.copies import fetched, lawful, missing
from agent_service.telling.folder.projector import Outcome
from agent_service.telling.folder.staging import Batch
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.pages.trail import pages_of

WRITTEN = Outcome()
AT_ONCE = 500
"""Pages of ended runs put away per batch, where many lie there from before."""

log = logging.getLogger(__name__)

OnTold = Callable[[Sequence[Moment]], None]


def nobody(_: Sequence[Moment]) -> None:
    """Where no one wants to know."""


class Shelf:
    """The ended runs whose pages stay in their folders. `keep`: at least one. `lying`: those now, oldest first."""

    def __init__(self, workspace: Workspace, keep: int, lying: Iterable[str] = ()) -> None:
        self._workspace = workspace
        self._keep = keep
        self._lying = dict.fromkeys(lying)

    def written(self, run_id: str, *, ended: bool) -> None:
        self._lying.pop(run_id, None)
        if ended:
            self._lying[run_id] = None

    def clear(self) -> None:
        surplus = list(self._lying)[: min(max(0, len(self._lying) - self._keep), AT_ONCE)]
        for run_id in surplus:
            del self._lying[run_id]
        try:
            self._workspace.put_away(surplus)
        except OSError as error:
            log.warning("pages of ended runs are not put away", extra={"runs": len(surplus), "why": repr(error)})


class TrailWriter:
    """One run that fails never stops the others. Without a `shelf` all pages stay."""

    def __init__(
        self, journals: Journals, workspace: Workspace, on_told: OnTold = nobody, shelf: Shelf | None = None
    ) -> None:
        self._journals = journals
        self._workspace = workspace
        self._on_told = on_told
        self._shelf = shelf

    async def write(self, run_ids: Collection[str]) -> dict[str, Outcome]:
        try:
            with self._workspace.batch() as batch:
                outcomes = {run_id: await self._staged(run_id, batch) for run_id in run_ids}
                failed = batch.publish()
            if self._shelf:
                self._shelf.clear()
        except Exception as error:  # noqa: BLE001 - to show runs must never stop them
            failed, outcomes = dict.fromkeys(run_ids, error), {}
        return outcomes | {run_id: _failed(error) for run_id, error in failed.items()}

    async def _staged(self, run_id: str, batch: Batch) -> Outcome:
        try:
            entries = await self._journals.entries(run_id)
            if flaw := flaw_in_chain(entries):
                return _failed(Changed(run_id, flaw))
            moments = tuple(retell(entries))
            if not moments:
                return WRITTEN
            self._on_told(moments)
            batch.stage(run_id, {name: text.encode() for name, text in pages_of(moments)})
            if self._shelf:
                self._shelf.written(run_id, ended=moments[-1].after.final)
            return Outcome(missing=missing(self._workspace, moments))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other runs are to be written
            return _failed(error)


async def rewrite(run_id: str, journals: Journals, workspace: Workspace, artifacts: Artifacts) -> None:
    """Writes the folder anew; a run without entries has none. Raises IllegalName, OSError, ValueError for a journal
    that cannot be told, and what the ports raise.
    """
    copies = await fetched(artifacts, run_id, lawful(tuple(retell(await journals.entries(run_id)))))
    workspace.remove(run_id)
    with workspace.batch() as batch:
        if entries := await journals.entries(run_id):
            pages = {name: text.encode() for name, text in pages_of(tuple(retell(entries)))}
            batch.stage(run_id, copies | pages)
        for error in batch.publish().values():
            raise error


def _failed(error: Exception) -> Outcome:
    damaged = error.what if isinstance(error, Damaged) else ""
    return Outcome(why=repr(error), lasting=isinstance(error, ValueError), damaged=damaged)
