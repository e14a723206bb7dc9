"""The HTTP calls on runs: parameters in, the desk's answer out."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response
from fastapi.sse import ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field

from agent_service.api import files as http_files
from agent_service.api.body import body_of
from agent_service.api.desk import Desk, EntryPage, RunPage
from agent_service.api.files import FileList
from agent_service.api.requests import CancelAnswer, CancelRequest, SignalAnswer, SignalRequest, WakeAnswer, WakeRequest
from agent_service.api.streams import SeenToTheEnd, Slots, last_event_id
from agent_service.core.waiting import Status
from agent_service.errors import TryAgain
from agent_service.telling.folder.run_files import RunFiles
from agent_service.telling.plain import json_visible
from agent_service.telling.views import RunView
from schemas.events import Id

log = logging.getLogger(__name__)


class PageQuery(BaseModel):
    """Which runs: in which state, how many, and after which page."""

    model_config = ConfigDict(extra="forbid")

    state: Status | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Id | None = None


class StretchQuery(BaseModel):
    """Which entries of a journal: after which number, and how many."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class RunsApi:
    """The endpoints. Their docstrings are the API's documentation."""

    def __init__(self, desk: Desk, files: RunFiles) -> None:
        self.slots = Slots()
        self._desk = desk
        self._files = files

    async def wake(self, request: Annotated[WakeRequest, Depends(body_of(WakeRequest))]) -> WakeAnswer:
        """Ask for a run. The answer comes once the run is durable; it may be asked again under the same `wake_id`."""
        return await self._desk.wake(request)

    async def list_runs(self, query: Annotated[PageQuery, Query()]) -> RunPage:
        """List runs, newest first."""
        return await self._desk.page(state=query.state, limit=query.limit, cursor=query.cursor)

    async def show_run(self, run_id: str) -> RunView:
        """Show where a run stands."""
        return await self._desk.status(run_id)

    async def list_entries(self, run_id: str, query: Annotated[StretchQuery, Query()]) -> EntryPage:
        """The journal of a run, for audit and replay."""
        return await self._desk.entries(run_id, after=query.after, limit=query.limit)

    async def can_follow(self, run_id: str, after: Annotated[int, Depends(last_event_id)]) -> None:
        """Refuse what cannot be followed, while there still is a status to say it with."""
        if await self._desk.seen_to_the_end(run_id, after):
            raise SeenToTheEnd

    async def follow_run(
        self, run_id: str, after: Annotated[int, Depends(last_event_id)]
    ) -> AsyncIterator[ServerSentEvent]:
        """Follow a run: its entries as they come, one event each, until it ends.

        `id` is the entry's number, `event` its kind, `data` the entry as in `/entries`. `Last-Event-ID` goes on after
        that entry. Whoever has seen the end already is answered with 204.
        """
        try:
            async for view in self._desk.follow(run_id, after):
                # many readers split lines where only Unicode would, so such characters go as JSON's own escapes
                data = json_visible(view.model_dump_json())
                yield ServerSentEvent(raw_data=data, event=view.kind, id=str(view.seq))
        except TryAgain as error:
            log.warning("an event stream is cut off", extra={"run_id": run_id, "why": str(error)})

    async def list_files(self, run_id: str) -> FileList:
        """The files of a run's workspace, with sizes and hashes."""
        await self._desk.check(run_id)
        return await http_files.listed(self._files, run_id)

    async def download_file(self, run_id: str, path: str) -> Response:
        """Download one file of a run's workspace.

        An artifact can be had as soon as the journal names it, and is compared with the hash recorded there (409
        `artifact_changed`).
        """
        return await http_files.download(self._files, run_id, path)

    async def cancel_run(
        self, run_id: str, request: Annotated[CancelRequest, Depends(body_of(CancelRequest))]
    ) -> CancelAnswer:
        """End a run now. It is cancelled when the answer comes; repeating it changes nothing.

        A run that ended otherwise stays as it is (409).
        """
        return await self._desk.cancel(run_id, request)

    async def signal_run(
        self, run_id: str, request: Annotated[SignalRequest, Depends(body_of(SignalRequest))]
    ) -> SignalAnswer:
        """Tell a run something, resume it, raise its budget, approve or reject. A `signal_id` is heard once."""
        return await self._desk.signal(run_id, request)
