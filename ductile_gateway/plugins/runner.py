"""Plugin folders run by the gateway itself, without a Ductile: one process per call (plugin protocol v2).

A call runs at most once: `run` refuses to start a key again; after a restart `resume` waits for the process that is
still there, reads what it left, or says that it never started or that this is unknown. Under systemd this needs
KillMode=process, or stopping the service kills the plugins with it.
"""

import asyncio
import json
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from ductile_gateway.calls.call import NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.plugins.boxes import Box, Orders, Ready
from ductile_gateway.plugins.call_folder import CallFolder, CallFolders, read_boot_id
from ductile_gateway.plugins.folders import InstalledPlugin, PluginRefused, require_trust
from ductile_gateway.plugins.manifest import Command, Described
from ductile_gateway.plugins.process import Guard, Guards, attend
from ductile_gateway.plugins.response import Ending, Remains, judge
from ductile_gateway.ports import Begin, unrecorded
from schemas.status import Finding

STDERR_BYTES = 64 * 1024
CALLS, PLACES = "calls", "places"
SHELL = Path("/bin/sh")
WITHIN = timedelta(seconds=10)
SECTION = "docs/SECURITY.md, plugins"
OPEN = f"a kernel with landlock, or run_as, keep them from it: {SECTION}"
UNBEGUN = f"give it what it needs by gateway.plugins.read, or choose another boundary: {SECTION}"


class LocalPlugins:
    """Calls leave their folders in `state_dir`, on a local disk and for one gateway, until forgotten."""

    finds_anywhere = False

    def __init__(self, plugins: Mapping[str, InstalledPlugin], *, state_dir: Path, box: Box) -> None:
        self._plugins = plugins
        self._state_dir = state_dir
        self._folders = CallFolders(state_dir / CALLS, boot_id=read_boot_id())
        self._box = box
        self._guards = Guards(state_dir / PLACES, box.environment)
        self._orders = Orders(box, _closed(state_dir))

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        """Raises AlreadyStarted if its key was started before and not forgotten. Cancelling leaves the process running.
        A missing command, a passed deadline and a failed start are errors, with nothing started."""
        plugin = self._plugins.get(call.plugin)
        if plugin is None or plugin.manifest.command(call.command) is None:
            return failed(
                "configuration", f"no plugin {call.plugin} with a command {call.command} is here", retryable=False
            )
        if call.deadline_at <= datetime.now(UTC):
            return failed("expired", "the deadline had passed before the plugin was started", retryable=True)
        try:
            for path in (plugin.folder, plugin.entrypoint):
                require_trust(path)
        except PluginRefused as refusal:  # it was found safe at the start
            return failed("configuration", f"the plugin was not started: {refusal}", retryable=False)
        await begin()
        try:
            ready = self._orders.of(plugin.folder, plugin.entrypoint, plugin.config)
            folder, guard = await asyncio.to_thread(self._start, call, plugin, ready)
        except ValueError as error:
            return failed("invalid_arguments", f"the payload is no JSON: {error}", retryable=False)
        except OSError as error:
            return failed("transient", f"the plugin could not be started: {error.strerror}", retryable=True)
        try:
            return await self._conclude(folder, call, guard)
        finally:
            self._guards.give_back(ready, guard)

    async def resume(self, call: ToolCall) -> Verdict:
        """NeverStarted: run it. Unknown: in doubt. Waits for a process that is still there until the call's
        deadline."""
        folder = self._folders.folder(call.key)
        return await self._conclude(folder, call) if folder.exists() else NeverStarted()

    async def forget(self, key: str) -> None:
        await asyncio.to_thread(self._folders.folder(key).discard)

    async def findings(self) -> Sequence[Finding]:
        return await look_at_box(self._box, self._plugins.values(), self._state_dir)

    async def stop(self, key: str) -> None:
        await attend(self._folders.folder(key), deadline_at=datetime.now(UTC), grace_s=self._box.limits.grace_s)

    def now_has(self, plugins: Mapping[str, InstalledPlugin]) -> None:
        self._plugins = plugins

    def _start(self, call: ToolCall, plugin: InstalledPlugin, ready: Ready) -> tuple[CallFolder, Guard]:
        with self._folders.publish(call.key, _request(call, plugin.config)) as (folder, lock):
            seconds = (call.deadline_at - datetime.now(UTC)).total_seconds()
            return folder, self._guards.start(ready, folder, lock, seconds)

    async def _conclude(self, folder: CallFolder, call: ToolCall, guard: Guard | None = None) -> Verdict:
        ending = await attend(folder, deadline_at=call.deadline_at, grace_s=self._box.limits.grace_s, guard=guard)
        plugin = self._plugins.get(call.plugin)
        verdict = await asyncio.to_thread(self._judge, folder, ending, plugin.config if plugin else {})
        if isinstance(verdict, NeverStarted):
            await asyncio.to_thread(folder.discard)
        return verdict

    def _judge(self, folder: CallFolder, ending: Ending, config: Mapping[str, JsonValue]) -> Verdict:
        return judge(
            Remains(
                ending,
                began=folder.number("began") is not None,
                unbegun=folder.noted("unbegun"),
                same_boot=self._folders.same_boot(folder),
                exit_code=folder.number("exit"),
                stdout=folder.content("stdout")[: self._box.limits.output_bytes],
                stderr=folder.content("stderr")[-STDERR_BYTES:],
                secrets=tuple(_secrets(dict(config))),
                began_at=folder.written_at("began"),
                ended_at=folder.written_at("exit"),
                output_bytes=self._box.limits.output_bytes,
            )
        )


def _closed(folder: Path) -> Sequence[Path]:
    return [folder.resolve() / name for name in (CALLS, PLACES)]


def _request(call: ToolCall, config: Mapping[str, JsonValue]) -> bytes:
    """The request as Ductile writes it: `handle` gets the payload as an event that an API call triggered."""
    request: dict[str, object] = {
        "protocol": 2,
        "job_id": call.key,
        "command": call.command,
        "config": dict(config),
        "state": {},
        "deadline_at": call.deadline_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    if call.command == "handle":
        zero = "0001-01-01T00:00:00Z"
        request["event"] = {"type": "api.trigger", "payload": dict(call.payload), "timestamp": zero}
    else:
        request["payload"] = dict(call.payload)
    if call.asked.request.untrusted:
        request["untrusted"] = True
    return json.dumps(request, allow_nan=False).encode()


def _secrets(config: JsonValue) -> Iterator[str]:
    match config:
        case str():
            yield config
        case dict():
            yield from chain.from_iterable(map(_secrets, config.values()))
        case list():
            yield from chain.from_iterable(map(_secrets, config))


async def look_at_box(box: Box, plugins: Iterable[InstalledPlugin], folder: Path | None = None) -> Sequence[Finding]:
    """What holds plugins, and whether one of them can begin there. `folder`: in which their calls have theirs."""
    told = box.boundary.told()
    for plugin in islice(plugins, 1):
        if why := await _refusal(box, plugin, folder):
            text = f"{told}: {plugin.manifest.name} cannot begin there: {why}"
            return [Finding(name="plugins", mark="wrong", text=text, remedy=UNBEGUN)]
    if box.boundary.is_closed:
        return [Finding(name="plugins", mark="ok", text=told)]
    text = f"{told}: the stores and settings of the services are in their reach"
    return [Finding(name="plugins", mark="warning", text=text, remedy=OPEN)]


async def _refusal(box: Box, plugin: InstalledPlugin, folder: Path | None) -> str:
    script = f": <{shlex.quote(str(plugin.entrypoint))} && : >own"
    with tempfile.TemporaryDirectory(prefix=".trying-", dir=folder) as made:
        place = Path(made)
        try:
            ready = Orders(box, _closed(place)).of(plugin.folder, SHELL, plugin.config)
            guards = Guards(place / PLACES, box.environment)
            with CallFolders(place / CALLS, boot_id="").publish("trying", script.encode()) as (call, lock):
                guard = guards.start(ready, call, lock, WITHIN.total_seconds())
            deadline = datetime.now(UTC) + WITHIN
            ending = await attend(call, deadline_at=deadline, grace_s=box.limits.grace_s, guard=guard)
            guard.leave()
        except OSError as error:
            return str(error)
        if ending == "ended" and call.number("exit") == 0:
            return ""
        return (
            call.noted("unbegun")
            or call.content("stderr")[-1000:].decode(errors="replace").strip()
            or "it does not end"
        )


class InProcessTools:
    finds_anywhere = False

    async def run(self, call: ToolCall, begin: Begin = unrecorded) -> Verdict:
        await begin()
        return ToolOutcome("ok", text=f"{call.command} was given {len(call.payload)} arguments", output=call.payload)

    async def resume(self, call: ToolCall) -> Verdict:
        return Unknown(f"the gateway ended while {call.plugin} {call.command} may have been running inside it")

    async def forget(self, key: str) -> None:
        """Nothing was remembered."""


def in_process_manifests() -> Mapping[str, Described]:
    about = "Gives its arguments back. Runs inside the gateway, for benchmarks and tests."
    types: dict[str, Literal["read", "write"]] = {"handle": "read", "write": "write"}
    commands = tuple(
        Command(name=name, type=tier, description=f"A {tier}.", input_schema={"type": "object"})
        for name, tier in types.items()
    )
    return {"echo": Described(name="echo", description=about, output="trusted", commands=commands)}
