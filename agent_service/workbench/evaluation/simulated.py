"""Simulated surroundings of a run: clock, bus and gateway, and patience with a busy provider.

Time jumps to the next message or timer that is due.
"""

import asyncio
import hashlib
import heapq
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import JsonValue
from ulid import ULID

from agent_service.core.events import ModelReplied
from agent_service.errors import ModelError
from agent_service.models.prompts.wording import canonical
from agent_service.run.ports import ModelCall
from agent_service.workbench.evaluation.expected import REQUESTS, PublishedMessage
from agent_service.workbench.evaluation.scenario import Document, Plugin, Scenario, ToolAnswer
from groundwork.service.process import ending_with_us
from schemas import keys, subjects
from schemas.bounded import clipped, json_object
from schemas.catalog import UNNAMED, Catalog
from schemas.envelope import MSG_ID
from schemas.events import Envelope, ToolError, ToolOutput, ToolRequest, ToolResult

START_TIME = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""Start time of every run, so that equal runs have equal prompts and a recording fits."""
WORK = (subjects.START, subjects.TOOL_RESULT, REQUESTS)

Due = tuple[datetime, int, str, bytes]
"""Time of arrival, sequence number, subject and body of a message."""


class SimulatedBus:
    """Implements the ports Clock and Bus."""

    def __init__(self, name: str) -> None:
        self.published: dict[str, PublishedMessage] = {}
        """By key: a message that is published again is none more."""
        self.due: list[Due] = []
        self._name = name
        self._now = START_TIME
        self._places = count(1)

    def now(self) -> datetime:
        return self._now

    def new_run_id(self, at: datetime) -> str:
        del at
        return f"run_{ULID.from_bytes(hashlib.sha256(self._name.encode()).digest()[:16])}"

    def later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)

    def advance_to(self, instant: datetime) -> None:
        """Moves the clock forward; a past `instant` leaves it as it is, because that message or timer is late."""
        self._now = max(self._now, instant)

    async def sleep(self, seconds: float) -> None:
        self._now = self.later(seconds)

    async def publish(self, subject: str, body: bytes, *, msg_id: str, **_: object) -> None:
        if msg_id not in self.published:
            self.published[msg_id] = PublishedMessage(subject=subject, key=msg_id, body=body)
            if subject.startswith(WORK):
                self.deliver(subject, body)

    async def send(self, subject: str, body: bytes, *, headers: Mapping[str, str]) -> None:
        await self.publish(subject, body, msg_id=headers[MSG_ID])

    def deliver(self, subject: str, body: bytes, *, after_s: float = 0.0) -> None:
        heapq.heappush(self.due, (self.later(after_s), next(self._places), subject, body))


THINKING_S = 5.0
RETRY_PAUSES_S = (2.0, 10.0, 30.0, 60.0, 60.0)
LONGEST_WAIT_S = 300.0


async def patiently(call: ModelCall, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> ModelReplied:
    """Makes a call, and waits in real time for a busy provider. At last the run fails: it could not be measured."""
    for wait_s in (*RETRY_PAUSES_S, None):
        try:
            return await call.make()
        except ModelError as error:
            if error.remedy != "try_again":
                raise
            if wait_s is None:
                why = f"{error}; {len(RETRY_PAUSES_S) + 1} tries were in vain: evaluate again later"
                raise ModelError("fail", error.error_class, why) from error
            longer_s = min(max(wait_s, error.retry_after_s or 0.0), LONGEST_WAIT_S)
        await sleep(longer_s)
    raise AssertionError("the last try has raised, or answered")


EXCERPT = 8192
PLUGIN_TAKES_S = 1.0
PLUGIN_LASTS_S = 60.0
"""Real seconds that a plugin may take."""
FILES = "$files"

Reply = ToolOutput | ToolError


async def run_plugin(plugin: Plugin, request: ToolRequest, payload: dict[str, JsonValue], scratch: Path) -> Reply:
    """Runs a real plugin in the folder `scratch`. `payload`: that of the request, with the texts of artifacts in place
    of their paths.
    """
    written = _written(plugin, scratch)
    config = {name: written if value == FILES else value for name, value in plugin.config.items()}
    call: dict[str, Any] = {"protocol": 2, "command": request.tool_command, "config": config, "state": {}}
    call |= {"event": {"type": "api.trigger", "payload": payload}} if request.tool_command == "handle" else {}
    call |= {"untrusted": True} if request.untrusted else {}
    process = await asyncio.create_subprocess_exec(
        *ending_with_us([str(plugin.place / plugin.manifest["entrypoint"])]),
        cwd=scratch,
        env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}", "HOME": written},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PLUGIN_LASTS_S):
            stdout, _ = await process.communicate(json.dumps(call | {"payload": payload}).encode())
    except TimeoutError:
        return ToolError(error_class="timeout", message=f"the plugin gave no answer in {PLUGIN_LASTS_S:g} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children, too: while one has its output, the wait goes on
            await process.wait()
    return _reply_in(stdout)


def _written(plugin: Plugin, scratch: Path) -> str:
    scratch.mkdir(parents=True, exist_ok=True)
    for name, content in plugin.files.items():
        (scratch / name).write_text(content, encoding="utf-8")
    return str(scratch)


def _reply_in(stdout: bytes) -> Reply:
    response = json_object(stdout) or {}
    if "status" not in response:
        return ToolError(error_class="bad_output", message="the plugin wrote no response in JSON")
    if response["status"] == "error":
        error_class, message = str(response.get("error_class") or "tool_error")[:64], str(response.get("error", ""))
        return ToolError(error_class=error_class, message=message, retryable=response.get("retry") is not False)
    output = {"summary": response.get("result")} | {name: response.get(name) for name in ("output", "continuation")}
    return ToolOutput.model_validate({name: value for name, value in output.items() if value is not None})


class SimulatedGateway:
    """Answers each request as the scenario says. Implements the ports Skills and RunArtifacts."""

    def __init__(self, scenario: Scenario, bus: SimulatedBus, folder: Path) -> None:
        self._artifacts: dict[tuple[str, str], bytes] = {}
        self._plugins = {one.plugin: one for one in scenario.plugins}
        self._folder = folder
        self._answers = {tool.name: tool.answers for tool in scenario.tools}
        self._bus = bus
        self._calls: Counter[tuple[str, int]] = Counter()
        offers = [*(tool.offer for tool in scenario.tools), *(plugin.offer for plugin in self._plugins.values())]
        offers += scenario.settings.own_tools()
        self.offers = tuple(sorted(offers, key=lambda offer: offer.name))

    async def catalog(self) -> Catalog:
        return Catalog(tools=self.offers)

    def present(self) -> frozenset[str]:
        return frozenset((UNNAMED,))

    async def get(self, run_id: str, path: str) -> bytes | None:
        return self._artifacts.get((run_id, path))

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        self._artifacts[run_id, path] = content

    def _keep(self, request: ToolRequest, document: Document) -> dict[str, Any]:
        path, file, text = f"artifacts/{document.name}", PurePosixPath(document.name), document.text
        if (request.run_id, path) in self._artifacts:
            path = f"artifacts/{file.stem}-{request.step:02d}{file.suffix}"
        content = self._artifacts[request.run_id, path] = text.encode()
        kept = {"path": path, "content_type": document.content_type, "size": len(content)}
        goes_on = f"; the whole is the artifact {path}, which goes on at line {text.count(chr(10), 0, EXCERPT) + 1}"
        return {
            "artifact_path": path,
            "content_type": document.content_type,
            "excerpt": clipped(text, EXCERPT, goes_on),
            "artifacts": [kept | {"sha256": hashlib.sha256(content).hexdigest()}],
        }

    def _filled(self, request: ToolRequest) -> dict[str, JsonValue]:
        filled = dict(request.tool_payload)
        for name, path in filled.items():
            if isinstance(path, str) and (content := self._artifacts.get((request.run_id, path))) is not None:
                filled[name] = {"path": path, "text": content.decode()}
        return filled

    async def take(self, request: ToolRequest) -> None:
        if plugin := self._plugins.get(request.tool):
            reply = await run_plugin(plugin, request, self._filled(request), self._folder / plugin.plugin)
            self._send(request, reply, PLUGIN_TAKES_S, asks="continuation" in (reply.model_extra or {}))
        elif (answer := self._answer(request)) is None:
            message = f"nothing is known for {canonical(request.tool_payload)}"
            self._send(request, ToolError(error_class="not_found", message=message))
        elif not answer.silence:
            self._send(request, self._reply(request, answer), answer.takes_s, asks=answer.continuation is not None)

    def _answer(self, request: ToolRequest) -> ToolAnswer | None:
        arguments = canonical(request.tool_payload)
        fitting = [
            (place, answer)
            for place, answer in enumerate(self._answers.get(request.tool, ()))
            if answer.command in (None, request.tool_command) and (answer.when is None or answer.when.search(arguments))
        ]
        self._calls.update((request.tool, place) for place, _ in fitting)
        turns = (answer for place, answer in fitting if answer.nth in (None, self._calls[request.tool, place]))
        return next(turns, None)

    def _reply(self, request: ToolRequest, answer: ToolAnswer) -> Reply:
        if answer.error:
            return answer.error
        if isinstance(answer.continuation, str):
            return ToolOutput(summary=answer.continuation)
        output: dict[str, Any] = {"continuation": answer.continuation} if answer.continuation is not None else {}
        if result := answer.result:
            output |= result.model_dump(include={"summary", "output"}, exclude_defaults=True)
            output |= self._keep(request, result.artifact) if result.artifact else {}
        return ToolOutput.model_validate(output)

    def _send(self, request: ToolRequest, reply: Reply, takes_s: float = 0.0, *, asks: bool = False) -> None:
        failed = isinstance(reply, ToolError)
        result = ToolResult(
            **request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round"}),
            status="error" if failed else "continuation" if asks else "ok",
            completed_at=self._bus.later(takes_s),
            **{"error" if failed else "result": reply},
        )
        key = keys.result(request.run_id, request.step, request.attempt, request.task, request.round)
        message = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key)
        self._bus.deliver(subjects.TOOL_RESULT, message.body(), after_s=takes_s)
