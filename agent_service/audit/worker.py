"""The worker: a process that writes the audit files of runs and sends their traces, as `process` asks it to."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_service.audit.process import ANSWERS, REQUESTS, TELLINGS, Request, Telling
from agent_service.models.prompts.prompt import as_text
from agent_service.store.sql.database import open_for_reading
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.projector import Outcome
from agent_service.telling.folder.workspace import Workspace
from agent_service.telling.folder.writer import Shelf, TrailWriter, nobody
from agent_service.telling.spans.attributes import Content
from agent_service.telling.spans.sending import FileMark, Traces
from groundwork.service import json_log
from groundwork.telemetry.sending import resource_of
from groundwork.telemetry.settings import sampler
from groundwork.telemetry.traces import CLOSING_S, SpanSender
from schemas import subjects

YIELDING = 19
"""The worker's niceness: turns come first."""
LONGEST_REQUEST = 1 << 24
"""Bytes of a line."""


async def answer(store: Path, workspaces: Path) -> None:

    requests = await _lines()
    telling = TELLINGS.validate_json(await requests.readline())
    json_log.set_up(telling.log_level.upper(), telling.log_format, redact=lambda: telling.redact)
    async with open_for_reading(store) as database:
        archive, workspace = SqliteStore(database), Workspace(workspaces)
        async with _traces(telling, archive, store if telling.member else workspaces) as traces:
            on_told = traces.take if traces and not telling.member else nobody
            writer = TrailWriter(archive, workspace, on_told, await _shelf(archive, workspace, telling.keep_pages))
            async for line in requests:
                request = REQUESTS.validate_json(line)
                answered = await _answered(request, writer, traces)
                sys.stdout.buffer.write(ANSWERS.dump_json(answered) + b"\n")
                sys.stdout.buffer.flush()


async def _shelf(archive: SqliteStore, workspace: Workspace, keep: int) -> Shelf:

    going_on = set(await archive.unsettled(datetime.now(UTC)))
    return Shelf(workspace, keep, [run_id for run_id in workspace.runs() if run_id not in going_on])


async def _answered(request: Request, writer: TrailWriter, traces: Traces | None) -> dict[str, Outcome]:
    if traces:
        traces.take_leaves(request.leaves)
    if not request.traced:
        return await writer.write(request.runs)
    if traces:
        await traces.tell(request.runs, request.member)
    return dict.fromkeys(request.runs, Outcome())


@contextlib.asynccontextmanager
async def _traces(telling: Telling, archive: SqliteStore, folder: Path) -> AsyncIterator[Traces | None]:
    if telling.receiver is None:
        yield None
        return

    sender = SpanSender(telling.receiver, resource_of(subjects.SERVICE_AGENT))
    mark = FileMark(folder, Workspace(folder).caught_up_at)
    content = Content(as_text) if telling.content else None
    committed = archive.members.entries_by if telling.member else None
    shared: dict[str, Any] = {"member": telling.member, "committed": committed}
    traces = Traces(archive, sender.send, mark, keeps=sampler(), content=content, **shared)
    sending = asyncio.create_task(traces.run())
    yield traces
    sending.cancel()
    await asyncio.wait([sending])
    await traces.finish(CLOSING_S)


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LONGEST_REQUEST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the agent, which ends its input once all is written
        signal.signal(number, signal.SIG_IGN)
    os.nice(YIELDING)
    asyncio.run(answer(*map(Path, sys.argv[1:])))
