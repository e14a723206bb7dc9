"""Operations that inspect one run: entries, timeline, steps, model calls, files, and the diagnosis."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, TypeVar

from fastapi import Response
from pydantic import BaseModel, Field

from agent_service.api.errors import ApiError, Code, unfit
from agent_service.api.people import Letters
from agent_service.api.requests import Query
from agent_service.api.runs import JournalReader, answering, present
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending
from agent_service.history.results import is_artifact_path
from agent_service.run.journal import replay
from agent_service.run.ports import ModelQuestion, PromptText, Skills
from agent_service.store.runs import RunStore
from agent_service.views import journal
from agent_service.views.run import StepDetail, items_of_step, step_detail
from agent_service.views.why import MessageLocation, Observations, WhyView, oldest_pending, why_view
from agent_service.views.workspace.files import FileList, IllegalName, TooLarge, Unsafe
from agent_service.views.workspace.rendering import ArtifactChanged, Folders
from groundwork.service.errors import Failure, in_time
from schemas import keys, subjects
from schemas.envelope import RUN_ID
from schemas.status import GatewayStatus, WaitingCall
from schemas.values import dataclass

BYTES = "application/octet-stream"
TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by suffix; all other files are bytes."""
WITHIN_S = 4.0

Number = Annotated[int, Field(ge=1, lt=2**31)]
T = TypeVar("T")


class EntriesQuery(Query):
    """A page of a journal."""

    after: Annotated[int, Field(ge=0, lt=2**53)] = 0
    """List entries after this number: `next_after` of the page before."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    """Maximum number of entries."""


class EntryPage(BaseModel):
    """Entries in order. `next_after` asks for the next page; null if there are no more yet."""

    entries: tuple[journal.EntryView, ...]
    next_after: int | None


@dataclass(slots=True)
class Inspection:
    """Methods raise ApiError (404, 410), and as the store does."""

    store: RunStore
    reader: JournalReader
    folders: Folders
    prompt_of: Callable[[ModelQuestion], PromptText]

    async def list_entries(self, run_id: str, query: EntriesQuery) -> EntryPage:
        """The journal of a run, for audit and replay."""
        newest = (await present(self.store, run_id)).state.version
        if query.after > newest:
            raise unfit("after", f"the run has only {newest} entries", run_id)
        records = await self.reader.records(run_id, query.after, query.limit + 1)
        shown = tuple(map(journal.entry_view, records[: query.limit]))
        return EntryPage(entries=shown, next_after=shown[-1].seq if len(records) > query.limit else None)

    async def show_timeline(self, run_id: str) -> journal.TimelineView:
        """Phases, steps, attempts, waits, and messages of people.

        Items come in order of their beginning, each followed by its parts. The phases of one model call share its
        number; its usage is given once.
        """
        run = await present(self.store, run_id)
        return journal.timeline_view(run_id, await self.reader.history(run_id, run.state.version))

    async def show_step(self, run_id: str, step: Number) -> StepDetail:
        """Arguments and reason of the step, and the full result of each attempt."""
        run = await present(self.store, run_id)
        items = items_of_step(await self.reader.history(run_id, run.state.version), step)
        if not items:
            raise ApiError(Code.UNKNOWN_STEP, "the run has taken no such step: see its `steps`", run_id=run_id)
        wanted = {item.answered_in for item in items if item.answered_in}
        found = await asyncio.gather(*(self.reader.records(run_id, seq - 1, 1) for seq in wanted))
        return step_detail(run.state, items, {record.entry.seq: record for records in found for record in records})

    async def show_call(self, run_id: str, call: Number) -> journal.CallView:
        """One model call."""
        made = journal.call_view(tuple(replay(await self.store.entries(run_id))), call, self.prompt_of)
        if made is None:
            await present(self.store, run_id)
            text = "the run has made fewer model calls: see its `usage`"
            raise ApiError(Code.UNKNOWN_CALL, text, run_id=run_id)
        return made

    async def list_files(self, run_id: str) -> FileList:
        """The files of a run's workspace."""
        found = await self._read(run_id, self.folders.files(run_id))
        return found or FileList(run_id=run_id, files=(), foreign=())

    async def download_file(self, run_id: str, path: str) -> Response:
        """An artifact is available as soon as the journal names it, and is checked against the hash recorded there (409
        `artifact_changed`). Browsers download files and never show them as pages of this service.
        """
        if is_artifact_path(path) and (artifacts := await self.store.artifacts_gone(run_id)):  # a copy may still exist
            raise ApiError(Code.ARTIFACTS_GONE, str(artifacts), run_id=run_id)
        content, name = await self._read(run_id, self.folders.read(run_id, path)), PurePosixPath(path)
        if content is None:
            raise _no_such_file()
        headers = {"Content-Disposition": f'attachment; filename="{name.name}"', "Accept-Ranges": "none"}
        return Response(content, headers=headers, media_type=TYPES.get(name.suffix, BYTES))

    async def _read(self, run_id: str, reading: Awaitable[T | None]) -> T | None:
        """Refuses what cannot be read, and a run that is unknown or was deleted meanwhile."""
        try:
            found = await reading
        except (IllegalName, Unsafe) as error:
            raise _no_such_file() from error
        except TooLarge as error:
            text = "the file is too large to be sent: take it from the disk"
            raise ApiError(Code.TOO_LARGE_TO_SEND, text) from error
        except ArtifactChanged as error:
            text = f"{error}: it was replaced, and is not sent"
            raise ApiError(Code.ARTIFACT_CHANGED, text) from error
        if found is None:
            await present(self.store, run_id)
        return found


def _no_such_file() -> ApiError:
    return ApiError(Code.NO_SUCH_FILE, "the run has no such file: its workspace lists those it has")


Locate = Callable[[str, str, str, datetime], Awaitable[MessageLocation | None]]
"""Finds the message in a stream, on a subject, with a dedupe key, sent at or after an instant. Raises Failure."""


@dataclass(slots=True)
class WhyCalls:
    """`gateway` returns the gateway's status, or None while none answers."""

    store: RunStore
    locate: Locate
    letters: Letters
    skills: Skills
    gateway: Callable[[], Awaitable[GatewayStatus | None]]
    readiness: Callable[[], Awaitable[Mapping[str, str]]]

    async def show_why(self, run_id: str) -> WhyView:
        """The wait of the run, its messages on the bus and their consumers, and a remedy. Parts that do not answer in
        time are named.
        """
        run = await present(self.store, run_id)
        return why_view(run.state, await self._observe(run.state))

    async def _observe(self, run: RunState) -> Observations:
        if run.final:
            return Observations(dismissal=await self.store.dismissal(run.run_id))
        pending = oldest_pending(run)
        trouble, none = list[str](), list[str]()
        lacks, letters, status, (request, result) = await asyncio.gather(
            _in_time(self.readiness(), {"readiness": f"no answer within {WITHIN_S:g} s"}, none),
            _in_time(self.letters.all(), [], trouble),
            _in_time(self.gateway(), None, none),
            self._locate_messages(run.run_id, pending, trouble),
        )
        silent = frozenset() if status else {subjects.SERVICE_GATEWAY}  # its status is newer than its catalog
        return Observations(
            trouble="; ".join(dict.fromkeys(trouble)),
            request=request,
            result=result,
            letters=tuple(letter for letter in letters if letter.headers.get(RUN_ID) == run.run_id),
            present=await answering(self.skills) - silent,
            gateway_call=_gateway_call(run.run_id, pending, status),
            lacks=lacks,
        )

    async def _locate_messages(
        self, run_id: str, pending: Pending | None, trouble: list[str]
    ) -> tuple[MessageLocation | None, MessageLocation | None]:
        if pending is None:
            return None, None
        attempt, since = (run_id, pending.step, pending.attempt, pending.task, pending.round), pending.requested_at
        asked = subjects.STREAM_REQUESTS, subjects.tool_request(pending.route), keys.request(*attempt)
        answered = subjects.STREAM_RESULTS, subjects.TOOL_RESULT, keys.result(*attempt)
        places = (_in_time(self.locate(*place, since), None, trouble) for place in (asked, answered))
        request, result = await asyncio.gather(*places)
        return request, result


async def _in_time(question: Awaitable[T], otherwise: T, trouble: list[str]) -> T:
    try:
        async with in_time("the bus", WITHIN_S):
            return await question
    except Failure as error:
        trouble.append(str(error))
    return otherwise


def _gateway_call(run_id: str, pending: Pending | None, status: GatewayStatus | None) -> WaitingCall | None:
    name = (run_id, *pending.name) if pending else None
    calls = status.waiting if status else ()
    return next((one for one in calls if (one.run_id, one.step, one.task or "", one.round or 0) == name), None)
