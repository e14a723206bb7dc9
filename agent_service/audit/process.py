"""Asks the worker, which reads the database, writes the workspaces and sends the traces.

Rendering takes half as long as all that the agent does for a step, and spans as much again: in a process of its own it
takes nothing from the thread that carries the turns. Standard input brings its settings, then requests, one JSON line
each; standard output takes the answers. The worker ends when its input ends, also when the agent is killed. The next
start catches up with what was asked for.
"""

import asyncio
import logging
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, cast

from pydantic import TypeAdapter

from agent_service.telling.folder.projector import Outcome
from groundwork.telemetry.settings import Receiver
from groundwork.telemetry.span import Span

WORKER = "agent_service.audit.worker"
IDLE_S = 60.0
"""It starts in a third of a second, and holds some 40 MB."""
KEEP_PAGES = 25
MOST_LEAVES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Sent by a pipe: others may read a command line. `member`: this agent, if several share a store; else empty."""

    member: str = ""
    keep_pages: int = KEEP_PAGES
    receiver: Receiver | None = None
    content: bool = False
    log_level: str = "warning"
    log_format: Literal["json", "text"] = "json"
    redact: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    runs: tuple[str, ...]
    leaves: tuple[Span, ...] = ()
    traced: bool = False
    member: str = ""


ANSWERS = TypeAdapter(dict[str, Outcome])
REQUESTS = TypeAdapter(Request)
TELLINGS = TypeAdapter(Telling)

log = logging.getLogger(__name__)


class TrailProcess:
    """The worker starts when it is needed, and ends after `idle_s` without requests."""

    def __init__(self, store: Path, workspaces: Path, telling: Telling, *, idle_s: float = IDLE_S) -> None:
        self._telling = telling
        self._idle_s = idle_s
        self._ending: asyncio.TimerHandle | None = None
        self._command = (sys.executable, "-m", WORKER, str(store), str(workspaces))
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._leaves: deque[Span] = deque(maxlen=MOST_LEAVES)
        self.sends = self._telling.receiver is not None

    def leaf(self, span: Span) -> None:
        self._leaves.append(span)

    async def write(self, run_ids: Collection[str]) -> Mapping[str, Outcome]:
        return await self._done(Request(runs=tuple(run_ids)))

    async def trace(self, run_ids: Collection[str], member: str = "") -> Mapping[str, Outcome]:
        """With `member`, what that one may not have sent."""
        return await self._done(Request(runs=tuple(run_ids), traced=True, member=member))

    async def _done(self, request: Request) -> Mapping[str, Outcome]:
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

    def _write(self, request: Request) -> dict[str, Outcome]:
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

    def _asked(self, request: Request) -> dict[str, Outcome]:
        settings = b""
        if self._process is None:
            settings = TELLINGS.dump_json(self._telling) + b"\n"
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        asked, answered = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            asked.write(settings + REQUESTS.dump_json(self._with_leaves(request)) + b"\n")
            asked.flush()
            return ANSWERS.validate_json(answered.readline())
        except (OSError, ValueError):
            self._end()
            raise

    def _with_leaves(self, request: Request) -> Request:
        return replace(request, leaves=tuple(self._leaves.popleft() for _ in range(len(self._leaves))))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()
