"""The process that tells of runs: it reads the database, writes the workspace, and sends the traces.

Rendering takes half as long as all that the agent does for a step, and spans as much again; in a process of its own it
takes nothing from the thread that carries the turns. Its standard input brings its settings, then requests, one line of
JSON each; its standard output takes the answers. It ends when its input ends, so also when the agent is killed: what it
was asked for is then caught up with at the next start.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from pydantic import TypeAdapter

from agent_service.store.sql.database import open_for_reading
from agent_service.store.sqlite import SqliteStore
from agent_service.telling.folder.projector import Outcome
from agent_service.telling.folder.workspace import Workspace
from groundwork.service import json_log
from groundwork.telemetry.settings import Receiver
from groundwork.telemetry.span import Span
from schemas import subjects

if TYPE_CHECKING:
    from agent_service.telling.folder.shelf import Shelf
    from agent_service.telling.folder.writer import TrailWriter
    from agent_service.telling.spans.sending import Traces

IDLE_S = 60.0
"""It starts in a third of a second, and holds some 40 MB."""
KEEP_PAGES = 25
YIELDING = 19
"""Where the processors do not suffice for all, the turns come first."""
MOST_LEAVES = 4096
LONGEST_REQUEST = 1 << 24
"""Bytes of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Where traces are sent, and how the process logs. It comes by a pipe: others may read a command line.

    `member`: which one the agent is of those that share a store; empty where it has one for itself. `keep_pages`: of
    how many ended runs the pages stay in their folders.
    """

    member: str = ""
    keep_pages: int = KEEP_PAGES
    receiver: Receiver | None = None
    content: bool = False
    log_level: str = "warning"
    log_format: Literal["json", "text"] = "json"
    redact: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    runs: tuple[str, ...]
    leaves: tuple[Span, ...] = ()
    traced: bool = False
    member: str = ""


_ANSWER = TypeAdapter(dict[str, Outcome])
_REQUEST = TypeAdapter(_Request)
_TELLING = TypeAdapter(Telling)

log = logging.getLogger(__name__)


class TrailProcess:
    """Fills the port Writer. The process is started when it is needed, and ended when nothing was for `idle_s`."""

    def __init__(
        self, store: Path, workspaces: Path, telling: Telling | None = None, *, idle_s: float = IDLE_S
    ) -> None:
        self._telling = telling or Telling()
        self._idle_s = idle_s
        self._ending: asyncio.TimerHandle | None = None
        self._command = (sys.executable, "-m", __name__, str(store), str(workspaces))
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._leaves: deque[Span] = deque(maxlen=MOST_LEAVES)
        self.sends = self._telling.receiver is not None

    def leaf(self, span: Span) -> None:
        self._leaves.append(span)

    async def write(self, run_ids: Collection[str]) -> Mapping[str, Outcome]:
        return await self._done(_Request(runs=tuple(run_ids)))

    async def trace(self, run_ids: Collection[str], member: str = "") -> Mapping[str, Outcome]:
        """Send what is new of the traces of runs; with `member`, what that one may not have sent of them."""
        return await self._done(_Request(runs=tuple(run_ids), traced=True, member=member))

    async def _done(self, request: _Request) -> Mapping[str, Outcome]:
        loop = asyncio.get_running_loop()
        if self._ending:
            self._ending.cancel()
        try:
            return await asyncio.to_thread(self._write, request)
        finally:
            if not self.sends:  # else a receiver that is away is waited for
                self._ending = loop.call_later(self._idle_s, loop.run_in_executor, None, self.close)

    def close(self) -> None:
        with self._turn:
            self._end()

    def _write(self, request: _Request) -> dict[str, Outcome]:
        run_ids = request.runs
        try:
            with self._turn:
                return self._asked(request)
        except (OSError, ValueError) as error:
            if len(run_ids) == 1:
                return {run_ids[0]: Outcome(why=f"the process that writes it died: {error!r}")}
        log.warning("the process that writes the paper trail died: one run at a time", extra={"runs": len(run_ids)})
        alone = (replace(request, runs=(run_id,)) for run_id in run_ids)
        return {run_id: outcome for one in alone for run_id, outcome in self._write(one).items()}

    def _asked(self, request: _Request) -> dict[str, Outcome]:
        settings = b""
        if self._process is None:
            settings = _TELLING.dump_json(self._telling) + b"\n"
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        asked, answered = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            asked.write(settings + _REQUEST.dump_json(self._with_leaves(request)) + b"\n")
            asked.flush()
            return _ANSWER.validate_json(answered.readline())
        except (OSError, ValueError):
            self._end()
            raise

    def _with_leaves(self, request: _Request) -> _Request:
        return replace(request, leaves=tuple(self._leaves.popleft() for _ in range(len(self._leaves))))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


async def answer(store: Path, workspaces: Path) -> None:
    from agent_service.telling.folder.writer import TrailWriter, nobody

    requests = await _lines()
    telling = _TELLING.validate_json(await requests.readline())
    json_log.set_up(telling.log_level.upper(), telling.log_format, redact=lambda: telling.redact)
    async with open_for_reading(store) as database:
        archive, workspace = SqliteStore(database), Workspace(workspaces)
        async with _traces(telling, archive, store if telling.member else workspaces) as traces:
            on_told = traces.take if traces and not telling.member else nobody
            writer = TrailWriter(archive, workspace, on_told, await _shelf(archive, workspace, telling.keep_pages))
            async for line in requests:
                request = _REQUEST.validate_json(line)
                answered = await _answered(request, writer, traces)
                sys.stdout.buffer.write(_ANSWER.dump_json(answered) + b"\n")
                sys.stdout.buffer.flush()


async def _shelf(archive: SqliteStore, workspace: Workspace, keep: int) -> "Shelf":
    from agent_service.telling.folder.shelf import Shelf

    going_on = set(await archive.unsettled(datetime.now(UTC)))
    return Shelf(workspace, keep, [run_id for run_id in workspace.runs() if run_id not in going_on])


async def _answered(request: _Request, writer: "TrailWriter", traces: "Traces | None") -> dict[str, Outcome]:
    if traces:
        traces.take_leaves(request.leaves)
    if not request.traced:
        return await writer.write(request.runs)
    if traces:
        await traces.tell(request.runs, request.member)
    return dict.fromkeys(request.runs, Outcome())


@contextlib.asynccontextmanager
async def _traces(telling: Telling, archive: SqliteStore, folder: Path) -> "AsyncIterator[Traces | None]":
    if telling.receiver is None:
        yield None
        return
    from agent_service.models.prompts.prompt import as_text
    from agent_service.telling.spans.attributes import Content
    from agent_service.telling.spans.mark import Mark
    from agent_service.telling.spans.sending import Traces
    from groundwork.telemetry.sending import resource_of
    from groundwork.telemetry.settings import sampler
    from groundwork.telemetry.traces import CLOSING_S, SpanSender

    sender = SpanSender(telling.receiver, resource_of(subjects.SERVICE_AGENT))
    mark = Mark(folder, Workspace(folder).caught_up_at)
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
