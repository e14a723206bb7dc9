"""What can be read over the bus beyond where a run stands: lists of runs, journals, files and tools, as over HTTP.

An answer is one message, which a server may bound at 1 MiB: of a journal as many entries are told as fit, and a file
comes in pieces. For operators alone: a journal holds all that a run was told, and what its tools answered.
"""

from base64 import b64encode
from collections.abc import Iterator
from itertools import accumulate

from nats.micro.request import Request
from nats.micro.service import Service
from pydantic import BaseModel, Field

from agent_service.api import requests
from agent_service.api.desk import Desk, EntryPage, RunPage
from agent_service.api.freshness import Fresh, at_once
from agent_service.api.micro_service import Endpoint, StatusCall, add, answering
from agent_service.api.refusals import Refusal
from agent_service.api.run_calls import FileList, PageQuery, StretchQuery, file_of, listed
from agent_service.api.tools import ToolCalls, ToolsView
from agent_service.core.waiting import Status
from agent_service.telling.folder.run_files import RunFiles
from schemas.fields import Id

MOST_BYTES = 512 * 1024
"""Of the entries, or the file, in one answer."""
LARGEST_FILE = 8 << 20
"""It is read anew for each piece."""


class RunsCall(PageQuery):
    """List runs, newest first."""


class EntriesCall(StretchQuery):
    """Entries of a journal, in order."""

    run_id: Id


class EntriesAnswer(EntryPage):
    """`status` is the run's; where it is final and `next_after` null, these are the last entries."""

    status: Status


class FilesCall(StatusCall):
    """Which files has the run?"""


class ToolsCall(BaseModel):
    """Which tools may runs use?"""


class FileCall(BaseModel):
    """A piece of one of its files, from byte `offset` on."""

    run_id: Id
    path: str
    offset: int = Field(0, ge=0)


class FilePiece(BaseModel):
    """`size` is that of the whole file, in bytes; `content` is in base64."""

    size: int
    content: str


async def serve_reading(
    service: Service,
    desk: Desk,
    files: RunFiles,
    tools: ToolCalls,
    fresh: Fresh = at_once,
    *,
    most_bytes: int = MOST_BYTES,
) -> None:
    """Answer these, too. `fresh` is waited for before anything is shown."""

    async def list_tools(request: Request) -> ToolsView:
        requests.read(ToolsCall, request.data)
        return await tools.list_tools()

    of_tools = Endpoint(name="tools", asked=ToolsCall, answered=ToolsView, handler=answering(list_tools))
    for endpoint in (*_endpoints(desk, files, fresh, most_bytes), of_tools):
        await add(service, endpoint)


def _endpoints(desk: Desk, files: RunFiles, fresh: Fresh, most_bytes: int) -> Iterator[Endpoint]:
    async def runs(request: Request) -> RunPage:
        call = requests.read(RunsCall, request.data)
        await fresh()
        return await desk.page(call.wanted(), limit=call.limit, cursor=call.cursor, before=call.before)

    async def entries(request: Request) -> EntriesAnswer:
        call = requests.read(EntriesCall, request.data)
        await fresh()
        return await _entries(desk, call, most_bytes)

    async def list_files(request: Request) -> FileList:
        call = requests.read(FilesCall, request.data)
        await fresh()
        await desk.check(call.run_id)
        return await listed(files, call.run_id)

    async def file(request: Request) -> FilePiece:
        call = requests.read(FileCall, request.data)
        await fresh()
        return await _piece(files, desk, call, most_bytes)

    yield Endpoint(name="runs", asked=RunsCall, answered=RunPage, handler=answering(runs))
    yield Endpoint(name="entries", asked=EntriesCall, answered=EntriesAnswer, handler=answering(entries))
    yield Endpoint(name="files", asked=FilesCall, answered=FileList, handler=answering(list_files))
    yield Endpoint(name="file", asked=FileCall, answered=FilePiece, handler=answering(file))


async def _entries(desk: Desk, call: EntriesCall, most_bytes: int) -> EntriesAnswer:
    status = await desk.standing(call.run_id)  # before its entries: a final one has no more than are found
    page = await desk.entries(call.run_id, after=call.after, limit=call.limit)
    sizes = accumulate(len(entry.model_dump_json()) for entry in page.entries)
    fitting = max(1, sum(size <= most_bytes for size in sizes))
    if fitting >= len(page.entries):
        return EntriesAnswer(entries=page.entries, next_after=page.next_after, status=status)
    kept = page.entries[:fitting]
    return EntriesAnswer(entries=kept, next_after=kept[-1].seq, status=status)


async def _piece(files: RunFiles, desk: Desk, call: FileCall, most_bytes: int) -> FilePiece:
    content = await file_of(files, desk, call.run_id, call.path)
    if len(content) > LARGEST_FILE:
        raise Refusal(409, "too_large_to_send", "the file is too large for the bus: take it over HTTP")
    piece = content[call.offset : call.offset + most_bytes]
    return FilePiece(size=len(content), content=b64encode(piece).decode())
