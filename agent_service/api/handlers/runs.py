"""The HTTP calls on runs, and files of workspaces as downloads. No browser shows a file as a page of this service."""

import logging
from collections.abc import Awaitable
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from agent_service.api.access import Caller, Payer, require_reading
from agent_service.api.body import Key, body_of, named, named_by
from agent_service.api.desk import Desk, EntryPage, RunCounts, RunPage
from agent_service.api.refusals import Refusal, no_such_file
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
from agent_service.api.streams.awaiting import Awaiting, Wait
from agent_service.core.waiting import FINAL, Status
from agent_service.run.lines import Wanted
from agent_service.views.folder.disk import IllegalName, TooLarge, Unsafe
from agent_service.views.folder.keeping import ArtifactChanged, Folders
from agent_service.views.folder.workspace import Listing
from agent_service.views.run import RunView
from schemas.fields import Instant

BYTES = "application/octet-stream"
TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""By suffix; everything else is bytes, whatever it calls itself."""

CURSOR = r"^run_[0-7][0-9A-HJKMNP-TV-Z]{25}$"

T = TypeVar("T")
Spoken = SignalRequest | ApprovalRequest | AnswerRequest

log = logging.getLogger(__name__)


class PageQuery(BaseModel):
    """Which runs, how many, and after which page. A run is listed if all that is asked applies to it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    status: tuple[Status, ...] = ()
    """Of any of these; may come several times."""
    text: Annotated[str, Field(max_length=200)] = ""
    """Is in the goal, the summary or the run id."""
    run: Annotated[str, Field(max_length=30)] = ""
    """Is a part of the run id."""
    tool: Annotated[str, Field(max_length=200)] = ""
    """Was used by a step, or is to be."""
    since: Instant | None = None
    """Accepted at this instant or later."""
    until: Instant | None = None
    """Accepted before this instant."""
    wake_id: Annotated[str, Field(max_length=128)] = ""
    """What whoever asked for it named it."""
    caller: Annotated[str, Field(max_length=200)] = ""
    """Who asked for it, such as `token ci`."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    """How many of them, at most."""
    cursor: Annotated[str | None, Field(pattern=CURSOR)] = None
    """`next_cursor` of the page before."""

    def wanted(self) -> Wanted:
        asked = self.model_dump(include={"text", "run", "tool", "since", "until", "wake_id", "caller"})
        return Wanted(statuses=frozenset(self.status), **asked)


class StretchQuery(BaseModel):
    """Which entries of a journal."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """Those after the entry of this number: `next_after` of the page before."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    """How many of them, at most."""


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

    def __init__(self, desk: Desk, files: Folders, awaiting: Awaiting) -> None:
        self._desk = desk
        self._awaiting = awaiting
        self._files = files

    async def wake(
        self,
        caller: Caller,
        payer: Payer,
        request: Annotated[WakeRequest, Depends(body_of(WakeRequest))],
        http: Request,
        response: Response,
        key: Key = None,
        traceparent: Annotated[str | None, Header(description="A trace of the caller's, to be linked.")] = None,
        wait: Wait = 0.0,
    ) -> WakeAnswer:
        """Ask for a run. The answer comes once the run is durable; it may be asked again under the same `wake_id`.

        With `wait`, it comes once the run has ended (200), or waits for a person or longer than that (202), and says in
        `run` how it stands, for which the token needs the scope `read`, too. An `Idempotency-Key` is the `wake_id` of a
        body without one. A wake whose run is kept no longer names it all the same.
        """
        if wait:
            require_reading(http)
        told: dict[str, Any] = {"by": caller, "payer": payer, "transport": "http", "traceparent": traceparent}
        with named_by(None if request.wake_id else key):
            answer = await self._desk.wake(named(request, wake_id=key), **told)
        if not wait or await self._desk.is_gone(answer.run_id):
            return answer
        await self._awaiting.rest(http, answer.run_id, wait)
        run = await self._desk.status(answer.run_id)
        response.status_code = 200 if run.status in FINAL else 202
        return answer.model_copy(update={"run": run})

    async def list_runs(self, query: Annotated[PageQuery, Query()]) -> RunPage:
        """List runs, newest first."""
        return await self._desk.page(query.wanted(), limit=query.limit, cursor=query.cursor)

    async def count_runs(self) -> RunCounts:
        """How many runs there are of each status, and what of them needs somebody."""
        return await self._desk.counts()

    async def show_run(self, run_id: str, http: Request, wait: Wait = 0.0) -> RunView:
        """Show where a run stands: now, or with `wait` once it has ended or waits for a person."""
        await self._awaiting.rest(http, run_id, wait)
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
        await self._desk.check_kept(run_id)
        return await download(self._files, self._desk, run_id, path)

    async def cancel_run(
        self, caller: Caller, run_id: str, request: Annotated[CancelRequest, Depends(body_of(CancelRequest))]
    ) -> CancelAnswer:
        """End a run now. It is cancelled when the answer comes; repeating it changes nothing.

        A run that ended otherwise stays as it is (409).
        """
        return await self._desk.cancel(run_id, request, by=caller)

    async def signal_run(
        self,
        caller: Caller,
        run_id: str,
        request: Annotated[SignalRequest, Depends(body_of(SignalRequest))],
        key: Key = None,
    ) -> SignalAnswer:
        """Tell a run something, answer, resume, raise its budget, approve or reject. A `signal_id` is heard once."""
        return await self._say(run_id, request, key, by=caller)

    async def rule_on_run(
        self,
        caller: Caller,
        run_id: str,
        request: Annotated[ApprovalRequest, Depends(body_of(ApprovalRequest))],
        key: Key = None,
    ) -> SignalAnswer:
        """Approve or reject what a run asks for: see `asks` of the run, of which this names the hash.

        What does not wait, or is something else by now, is refused (409 `not_heard`). Who decided is in the journal.
        """
        return await self._say(run_id, request, key, by=caller)

    async def answer_run(
        self,
        caller: Caller,
        run_id: str,
        request: Annotated[AnswerRequest, Depends(body_of(AnswerRequest))],
        key: Key = None,
    ) -> SignalAnswer:
        """Answer the question of a run, or its escalation, which sets it going again.

        A budget that ended it has to be raised with the answer. A run that is done, failed or cancelled stays closed
        (409 `not_heard`).
        """
        return await self._say(run_id, request, key, by=caller)

    async def _say(self, run_id: str, said: Spoken, key: str | None, *, by: str) -> SignalAnswer:
        with named_by(None if said.signal_id else key):
            return await self._desk.signal(run_id, named(said, signal_id=key), by=by)


async def listed(files: Folders, run_id: str) -> FileList:
    """Refuses (404) what can be no run."""
    found = await _of_disk(files.files(run_id)) or Listing(files=(), foreign=())
    lines = tuple(FileLine(path=file.path, size=file.size, sha256=file.sha256) for file in found.files)
    return FileList(run_id=run_id, files=lines, foreign=found.foreign)


async def download(files: Folders, desk: Desk, run_id: str, path: str) -> Response:
    content = await file_of(files, desk, run_id, path)
    name = PurePosixPath(path)
    headers = {"Content-Disposition": f'attachment; filename="{name.name}"', "Accept-Ranges": "none"}
    return Response(content, headers=headers, media_type=TYPES.get(name.suffix, BYTES))


async def file_of(files: Folders, desk: Desk, run_id: str, path: str) -> bytes:
    """Refuses with 404, 410 for an expired artifact, and 409 for what is too large or not what the journal recorded."""
    await desk.check_artifacts_kept(run_id, path)
    content = await _of_disk(files.read(run_id, path))
    if content is None:
        raise no_such_file()
    return content


async def _of_disk(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except (IllegalName, Unsafe) as error:
        raise no_such_file() from error
    except TooLarge as error:
        raise Refusal(409, "too_large_to_send", "the file is too large to be sent: take it from the disk") from error
    except ArtifactChanged as error:
        raise Refusal(
            409, "artifact_changed", f"{error}: somebody has replaced it, and it is not handed out"
        ) from error
