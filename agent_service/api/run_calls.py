"""The HTTP calls on runs: parameters in, the desk's answer out; event streams, and files of workspaces as downloads.

A reader of events (SSE) that comes back with `Last-Event-ID` gets what follows, each entry once; one that has seen the
end of its run gets 204, which is how a browser is told not to come back (HTML standard, server-sent events). Streams
are few: each costs a look at the journal every second. No browser shows a file as a page of this service.
"""

import logging
from collections.abc import Awaitable
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from agent_service.api.access import Caller, Payer
from agent_service.api.body import body_of
from agent_service.api.desk import Desk, EntryPage, RunCounts, RunPage
from agent_service.api.refusals import Refusal
from agent_service.api.requests import (
    AnswerRequest,
    ApprovalRequest,
    CancelAnswer,
    CancelRequest,
    SignalAnswer,
    SignalRequest,
    WakeAnswer,
    WakeRequest,
)
from agent_service.core.waiting import Status
from agent_service.lines import Wanted
from agent_service.telling.folder.disk import TooLarge, Unsafe
from agent_service.telling.folder.run_files import ArtifactChanged, RunFiles
from agent_service.telling.folder.staging import IllegalName
from agent_service.telling.folder.workspace import Listing
from agent_service.telling.views import RunView
from schemas.fields import Instant

BYTES = "application/octet-stream"
TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""By suffix; everything else is bytes, whatever it calls itself."""

CURSOR = r"^run_[0-9A-Z]{26}$"

T = TypeVar("T")

log = logging.getLogger(__name__)


class PageQuery(BaseModel):
    """Which runs, how many, and after which page. A run is listed if all that is asked applies to it.

    `state` may come several times, for any of them. `text` is in the goal, the summary or the run id; `tool` was used
    by a step, or is to be; `since` is when the run was accepted, at the earliest.
    """

    model_config = ConfigDict(extra="forbid")

    state: tuple[Status, ...] = ()
    text: Annotated[str, Field(max_length=200)] = ""
    tool: Annotated[str, Field(max_length=200)] = ""
    since: Instant | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str | None, Field(pattern=CURSOR, description="`next_cursor` of the page before.")] = None

    def wanted(self) -> Wanted:
        return Wanted(statuses=frozenset(self.state), text=self.text, tool=self.tool, since=self.since)


class StretchQuery(BaseModel):
    """Which entries of a journal: after which number, and how many."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class FileLine(BaseModel):
    """`size` is in bytes; `sha256` in hex, null for a file that is too large to be hashed for a list."""

    path: str
    size: int
    sha256: str | None


class FileList(BaseModel):
    """What lies in a run's folder; `foreign` are names that are none of its files, such as links."""

    run_id: str
    files: tuple[FileLine, ...]
    foreign: tuple[str, ...]


class RunCalls:
    """Their docstrings are the API's documentation."""

    def __init__(self, desk: Desk, files: RunFiles) -> None:
        self._desk = desk
        self._files = files

    async def wake(
        self,
        caller: Caller,
        payer: Payer,
        request: Annotated[WakeRequest, Depends(body_of(WakeRequest))],
        traceparent: Annotated[str | None, Header(description="A trace of the caller's, to be linked.")] = None,
    ) -> WakeAnswer:
        """Ask for a run. The answer comes once the run is durable; it may be asked again under the same `wake_id`."""
        return await self._desk.wake(request, by=caller, payer=payer, transport="http", traceparent=traceparent)

    async def list_runs(self, query: Annotated[PageQuery, Query()]) -> RunPage:
        """List runs, newest first."""
        return await self._desk.page(query.wanted(), limit=query.limit, cursor=query.cursor)

    async def count_runs(self) -> RunCounts:
        """How many runs there are of each state, and what of them needs somebody."""
        return await self._desk.counts()

    async def show_run(self, run_id: str) -> RunView:
        """Show where a run stands."""
        return await self._desk.status(run_id)

    async def list_entries(self, run_id: str, query: Annotated[StretchQuery, Query()]) -> EntryPage:
        """The journal of a run, for audit and replay."""
        return await self._desk.entries(run_id, after=query.after, limit=query.limit)

    async def list_files(self, run_id: str) -> FileList:
        """The files of a run's workspace, with sizes and hashes."""
        await self._desk.check(run_id)
        return await listed(self._files, run_id)

    async def download_file(self, run_id: str, path: str) -> Response:
        """Download one file of a run's workspace.

        An artifact can be had as soon as the journal names it, and is compared with the hash recorded there (409
        `artifact_changed`).
        """
        return await download(self._files, run_id, path)

    async def cancel_run(
        self, caller: Caller, run_id: str, request: Annotated[CancelRequest, Depends(body_of(CancelRequest))]
    ) -> CancelAnswer:
        """End a run now. It is cancelled when the answer comes; repeating it changes nothing.

        A run that ended otherwise stays as it is (409).
        """
        return await self._desk.cancel(run_id, request, by=caller)

    async def signal_run(
        self, caller: Caller, run_id: str, request: Annotated[SignalRequest, Depends(body_of(SignalRequest))]
    ) -> SignalAnswer:
        """Tell a run something, answer, resume, raise its budget, approve or reject. A `signal_id` is heard once."""
        return await self._desk.signal(run_id, request, by=caller)

    async def rule_on_run(
        self, caller: Caller, run_id: str, request: Annotated[ApprovalRequest, Depends(body_of(ApprovalRequest))]
    ) -> SignalAnswer:
        """Approve or reject what a run asks for: see `asks` of the run, of which this names the hash.

        What does not wait, or is something else by now, is refused (409 `not_heard`). Who decided is in the journal.
        """
        return await self._desk.signal(run_id, request, by=caller)

    async def answer_run(
        self, caller: Caller, run_id: str, request: Annotated[AnswerRequest, Depends(body_of(AnswerRequest))]
    ) -> SignalAnswer:
        """Answer the question of a run, or its escalation, which sets it going again.

        A budget that ended it has to be raised with the answer. A run that is done, failed or cancelled stays closed
        (409 `not_heard`).
        """
        return await self._desk.signal(run_id, request, by=caller)


async def listed(files: RunFiles, run_id: str) -> FileList:
    """The files of a run, none where it has no folder yet. Refuses (404) what can be no run."""
    found = await _of_disk(files.files(run_id)) or Listing(files=(), foreign=())
    lines = tuple(FileLine(path=file.path, size=file.size, sha256=file.sha256) for file in found.files)
    return FileList(run_id=run_id, files=lines, foreign=found.foreign)


async def download(files: RunFiles, run_id: str, path: str) -> Response:
    """One file. Refuses with 404, and with 409 for what is too large to be sent or not what the journal recorded."""
    content = await _of_disk(files.read(run_id, path))
    if content is None:
        raise _no_file()
    name = PurePosixPath(path)
    headers = {"Content-Disposition": f'attachment; filename="{name.name}"', "Accept-Ranges": "none"}
    return Response(content, headers=headers, media_type=TYPES.get(name.suffix, BYTES))


async def _of_disk(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except (IllegalName, Unsafe) as error:
        raise _no_file() from error
    except TooLarge as error:
        raise Refusal(409, "too_large_to_send", "the file is too large to be sent: take it from the disk") from error
    except ArtifactChanged as error:
        raise Refusal(
            409, "artifact_changed", f"{error}: somebody has replaced it, and it is not handed out"
        ) from error


def _no_file() -> Refusal:
    return Refusal(404, "no_such_file", "the run has no such file: its workspace lists those it has")
