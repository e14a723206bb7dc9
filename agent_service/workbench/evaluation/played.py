"""Time, a bus, a person and a gateway, played: no instant is waited for, and a message arrives when it is due."""

import asyncio
import hashlib
import heapq
import json
import os
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import yaml
from pydantic import JsonValue
from ulid import ULID

from agent_service.core.state import RunState
from agent_service.core.waiting import Approval
from agent_service.models.prompts.templating import canonical
from agent_service.workbench.evaluation.scenario import Document, PersonsSignal, Plugin, Scenario, ToolAnswer
from agent_service.workbench.evaluation.scoring import Said
from schemas import keys, subjects
from schemas.catalog import UNNAMED, Catalog, ToolOffer
from schemas.clipping import clipped
from schemas.events import Cancel, Envelope, Signal, ToolError, ToolOutput, ToolRequest, ToolResult

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When every run begins: the same prompt for the same run, so that a recording fits."""


class PlayedClock:
    def __init__(self, name: str) -> None:
        self._name = name
        self._now = BEGIN

    def now(self) -> datetime:
        return self._now

    def new_run_id(self) -> str:
        return f"run_{ULID.from_bytes(hashlib.sha256(self._name.encode()).digest()[:16])}"

    def later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)

    def advance_to(self, instant: datetime) -> None:
        """Never back: what was due while something else went on is late."""
        self._now = max(self._now, instant)

    async def sleep(self, seconds: float) -> None:
        self._now = self.later(seconds)


WORK = (subjects.START, subjects.TOOL_RESULT, f"{subjects.TOOL_REQUEST}.")
Due = tuple[datetime, int, str, bytes]
"""When a message arrives, its place among all, subject and body."""


class PlayedBus:
    def __init__(self, clock: PlayedClock) -> None:
        self.said: list[Said] = []
        self.due: list[Due] = []
        self._clock = clock
        self._keys: set[str] = set()
        self._places = 0

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        del headers
        if key not in self._keys:
            self._keys.add(key)
            self.said.append(Said(at=self._clock.now(), subject=subject, key=key, body=body))
            if subject.startswith(WORK):
                self.send(subject, body)

    tell = publish

    def send(self, subject: str, body: bytes, *, after_s: float = 0.0) -> None:
        self._places += 1
        heapq.heappush(self.due, (self._clock.later(after_s), self._places, subject, body))

    def next(self) -> Due:
        return heapq.heappop(self.due)


Moment = Literal["during_step", "during_call", "when_paused", "when_escalated"]


class PlayedPerson:
    """Signals and cancels runs as the file says, once each. Place 0 is the scenario's run, n its n-th child."""

    def __init__(self, scenario: Scenario, clock: PlayedClock) -> None:
        self._left = list(scenario.signals)
        self._clock = clock
        self._done = 0

    def says(
        self, state: RunState, place: int, moment: Moment, at: int | bool = True
    ) -> list[tuple[str, bytes, float]]:
        """Subject, body, and after how long. Of several for the same rest only the next."""
        fitting = [one for one in self._left if getattr(one, moment) == at and (one.child or 0) == place]
        chosen = fitting[:1] if at is True else fitting
        self._left = [one for one in self._left if not any(one is said for said in chosen)]  # two may be alike
        return [(*self._said(state, signal), signal.after_s) for signal in chosen]

    def _said(self, state: RunState, signal: PersonsSignal) -> tuple[str, bytes]:
        self._done += 1
        if signal.kind == "cancel":
            cancel = Cancel(run_id=state.run_id, reason=signal.message)
            return subjects.CANCEL, Envelope[Cancel](type=subjects.CANCEL, payload=cancel).body()
        at = self._clock.later(signal.after_s)
        asked = state.ask.subject_hash if isinstance(state.ask, Approval) else None
        payload = Signal(
            run_id=state.run_id,
            signal_id=f"s{self._done}",
            kind=signal.kind,
            message=signal.message,
            constraints=signal.constraints.constraints(at) if signal.constraints else None,
            arguments_hash=signal.arguments_hash or asked,
            outcome=signal.outcome,
        )
        return subjects.SIGNAL, Envelope[Signal](type=subjects.SIGNAL, payload=payload).body()


EXCERPT = 8192


class KeptArtifacts:
    def __init__(self) -> None:
        self._contents: dict[tuple[str, str], bytes] = {}

    async def get(self, run_id: str, path: str) -> bytes | None:
        return self._contents.get((run_id, path))

    async def put(self, run_id: str, path: str, content: bytes) -> None:
        self._contents[run_id, path] = content

    def keep(self, request: ToolRequest, document: Document, excerpt: str | None) -> dict[str, Any]:
        path, file, text = f"artifacts/{document.name}", PurePosixPath(document.name), document.text
        if (request.run_id, path) in self._contents:
            path = f"artifacts/{file.stem}-{request.step:02d}{file.suffix}"
        content = self._contents[request.run_id, path] = text.encode()
        kept = {"path": path, "content_type": document.content_type, "size": len(content)}
        goes_on = f"; the whole is the artifact {path}, which goes on at line {text.count(chr(10), 0, EXCERPT) + 1}"
        return {
            "artifact_path": path,
            "content_type": document.content_type,
            "excerpt": clipped(text, EXCERPT, goes_on) if excerpt is None else excerpt,
            "artifacts": [kept | {"sha256": hashlib.sha256(content).hexdigest()}],
        }

    def filled(self, request: ToolRequest) -> dict[str, JsonValue]:
        """The payload of a request, with the text of each artifact in the place of its path."""
        filled = dict(request.tool_payload)
        for name, path in filled.items():
            if isinstance(path, str) and (content := self._contents.get((request.run_id, path))) is not None:
                filled[name] = {"path": path, "text": content.decode()}
        return filled


PLUGIN_TAKES_S = 1.0
HOUSEKEEPING = frozenset({"health", "init"})
FILES = "$files"


class PluginFolder:
    """A plugin that takes part as it is. `scratch`: its folder."""

    def __init__(self, plugin: Plugin, scratch: Path) -> None:
        self._plugin = plugin
        self._scratch = scratch
        self._manifest: dict[str, Any] = yaml.safe_load((plugin.place / "manifest.yaml").read_text("utf-8"))

    @property
    def offer(self) -> ToolOffer:
        shown = [command for command in self._manifest["commands"] if command["name"] not in HOUSEKEEPING]
        commands = [command | {"tier": command["type"]} for command in shown]
        return ToolOffer.model_validate(self._manifest | {"route": self._manifest["name"], "commands": commands})

    async def answer(self, request: ToolRequest, payload: dict[str, JsonValue]) -> ToolOutput | ToolError:
        """`payload`: that of the request, with the texts of artifacts in the place of their paths."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        for name, content in self._plugin.files.items():
            (self._scratch / name).write_text(content, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            str(self._plugin.place / self._manifest["entrypoint"]),
            cwd=self._scratch,
            env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}", "HOME": str(self._scratch)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        answered, _ = await process.communicate(self._asked(request, payload))
        return _read(answered)

    def _asked(self, request: ToolRequest, payload: dict[str, JsonValue]) -> bytes:
        given = self._plugin.config.items()
        config = {name: str(self._scratch) if value == FILES else value for name, value in given}
        event = {"event": {"type": "api.trigger", "payload": payload}} if request.tool_command == "handle" else {}
        untrusted = {"untrusted": True} if request.untrusted else {}
        asked = {"protocol": 2, "command": request.tool_command, "config": config, "state": {}}
        return json.dumps({"payload": payload, **asked, **event, **untrusted}).encode()


def _read(answered: bytes) -> ToolOutput | ToolError:
    try:
        told: dict[str, JsonValue] = json.loads(answered)
    except ValueError:
        return ToolError(error_class="bad_output", message="the plugin wrote no JSON")
    if told.get("status") == "error":
        error_class, message = str(told.get("error_class") or "tool_error"), str(told.get("error"))
        return ToolError(error_class=error_class, message=message, retryable=told.get("retry") is not False)
    output = {"summary": told.get("result"), "output": told.get("output"), "continuation": told.get("continuation")}
    return ToolOutput.model_validate({name: value for name, value in output.items() if value is not None})


class PlayedGateway:
    """Answers every request once, as the scenario's file says."""

    def __init__(self, scenario: Scenario, bus: PlayedBus, clock: PlayedClock, folder: Path) -> None:
        self.artifacts = KeptArtifacts()
        self._plugins = {one.plugin: PluginFolder(one, folder / one.plugin) for one in scenario.plugins}
        self._answers = {tool.name: tool.answers for tool in scenario.tools}
        self._bus = bus
        self._clock = clock
        self._calls: Counter[tuple[str, int]] = Counter()
        offers = [*(tool.offer for tool in scenario.tools), *(plugin.offer for plugin in self._plugins.values())]
        offers += scenario.settings.own_tools()
        self.offers = tuple(sorted(offers, key=lambda offer: offer.name))

    async def catalog(self) -> Catalog:
        return Catalog(tools=self.offers)

    def present(self) -> frozenset[str]:
        return frozenset((UNNAMED,))

    async def take(self, request: ToolRequest) -> None:
        if plugin := self._plugins.get(request.tool):
            told = await plugin.answer(request, self.artifacts.filled(request))
            self._send(request, told, PLUGIN_TAKES_S, asks="continuation" in (told.model_extra or {}))
        elif (answer := self._answer(request)) is None:
            message = f"nothing is known for {canonical(request.tool_payload)}"
            self._send(request, ToolError(error_class="not_found", message=message))
        elif not answer.silence:
            self._send(request, self._told(request, answer), answer.takes_s, asks=answer.continuation is not None)

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

    def _told(self, request: ToolRequest, answer: ToolAnswer) -> ToolOutput | ToolError:
        if answer.error:
            return ToolError(**answer.error.model_dump())
        if isinstance(answer.continuation, str):
            return ToolOutput(summary=answer.continuation)
        told: dict[str, Any] = {"continuation": answer.continuation} if answer.continuation is not None else {}
        if result := answer.result:
            told |= result.model_dump(include={"summary", "output"}, exclude_defaults=True)
            told |= self.artifacts.keep(request, result.artifact, result.excerpt) if result.artifact else {}
        return ToolOutput.model_validate(told)

    def _send(
        self, request: ToolRequest, told: ToolOutput | ToolError, takes_s: float = 0.0, *, asks: bool = False
    ) -> None:
        failed = isinstance(told, ToolError)
        result = ToolResult(
            **request.model_dump(include={"run_id", "step", "tool", "attempt", "task", "round"}),
            status="error" if failed else "continuation" if asks else "ok",
            completed_at=self._clock.later(takes_s),
            **{"error" if failed else "result": told},
        )
        key = keys.result(request.run_id, request.step, request.attempt, request.task, request.round)
        message = Envelope[ToolResult](type=subjects.TOOL_RESULT, payload=result, dedupe_key=key)
        self._bus.send(subjects.TOOL_RESULT, message.body(), after_s=takes_s)
