"""Runs plugin folders without a Ductile: one process per call (plugin protocol v2).

A call runs at most once: `run` refuses to start a key again. After a restart `resume` waits for a process that still
runs and reads its record; the verdict may be that it never started, or that this is unknown. Under systemd this needs
KillMode=process, or stopping the service kills the plugins, too.
"""

import asyncio
import contextlib
import json
import shlex
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

from ductile_gateway.calls.call import NeverStarted, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.plugins.boxes import Box, KeyedOrder, OrderCache, plugin_environment
from ductile_gateway.plugins.call_record import CallRecord, CallRecords
from ductile_gateway.plugins.folders import Config, InstalledPlugin, PluginRefused, require_trust
from ductile_gateway.plugins.manifest import PluginCommand, PluginDescription
from ductile_gateway.plugins.process import Guard, GuardPool, attend
from ductile_gateway.plugins.response import CallRemains, PluginSecrets, judge
from ductile_gateway.ports import Begin
from groundwork.service.machine import boot_id, new_uuid
from schemas.status import Finding
from schemas.values import replace

JUDGED_AT_ONCE = 64 * 1024
CALLS, PLACES = "calls", "places"
SHELL = Path("/bin/sh")
WITHIN = timedelta(seconds=10)
SECTION = "docs/SECURITY.md, plugins"
OPEN = f"a kernel with landlock, or run_as, keep them from it: {SECTION}"
UNBEGUN = f"give it what it needs by gateway.plugins.read, or choose another boundary: {SECTION}"


class LocalPlugins:
    """Keeps the records of its calls in `state_dir`, on a local disk and for one gateway, until they are forgotten."""

    finds_anywhere = False

    def __init__(self, plugins: Mapping[str, InstalledPlugin], *, state_dir: Path, box: Box) -> None:
        self._state_dir = state_dir
        # without one from the system a new one at each start, so that more calls end as unknown
        self._records = CallRecords(state_dir / CALLS, boot_id=boot_id() or str(new_uuid()))
        self._box = box
        usual = plugin_environment()
        self._named = {name: value for name, value in box.environment.items() if name not in usual}
        """Variables that are passed on to plugins alone, such as keys."""
        self._guards = GuardPool(state_dir / PLACES, box.environment)
        self._orders = OrderCache(_with_records_closed(box, state_dir))
        self.replace_tools(plugins)

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        """A missing command and a failed start are errors, with nothing started."""
        plugin, secrets = self._plugins.get(call.plugin), self._secrets.get(call.plugin)
        if plugin is None or plugin.manifest.command(call.command) is None:
            return failed(
                "configuration", f"no plugin {call.plugin} with a command {call.command} is here", retryable=False
            )
        try:
            for path in (plugin.folder, plugin.entrypoint):
                require_trust(path)
        except (PluginRefused, OSError) as refusal:  # it was safe when it was discovered
            return failed("configuration", f"the plugin was not started: {refusal}", retryable=False)
        await begin()
        try:
            ready = self._orders.of(plugin.folder, plugin.entrypoint, plugin.config)
            record, guard = await asyncio.to_thread(self._start, call, plugin, ready)
        except ValueError as error:
            return failed("invalid_arguments", f"the payload is no JSON: {error}", retryable=False)
        except OSError as error:
            return failed("transient", f"the plugin could not be started: {error.strerror or error}", retryable=True)
        try:
            return await self._conclude(record, call, guard, secrets)
        finally:
            self._guards.give_back(ready, guard)

    async def resume(self, call: ToolCall) -> Verdict:
        record = self._records.of(call.key)
        return await self._conclude(record, call) if record.path.exists() else NeverStarted()

    async def forget(self, key: str) -> None:
        """The record has the plugin's configuration, secrets too."""
        await asyncio.to_thread(self._records.of(key).discard)

    async def findings(self) -> Sequence[Finding]:
        return await box_findings(self._box, self._plugins.values(), self._state_dir)

    async def stop(self, key: str) -> None:
        await attend(self._records.of(key), deadline_at=datetime.now(UTC), grace_s=self._box.limits.grace_s)

    def replace_tools(self, plugins: Mapping[str, InstalledPlugin]) -> None:
        self._plugins = plugins
        self._secrets = {name: PluginSecrets(plugin.config, self._named) for name, plugin in plugins.items()}

    def _start(self, call: ToolCall, plugin: InstalledPlugin, ready: KeyedOrder) -> tuple[CallRecord, Guard]:
        request, durable = _request(call, plugin.config), not call.may_repeat
        with self._records.create(call.key, request, durable=durable) as (record, descriptor):
            deadline = time.monotonic() + (call.deadline_at - datetime.now(UTC)).total_seconds()
            return record, self._guards.start(ready, record.path.name, descriptor, deadline)

    async def _conclude(
        self, record: CallRecord, call: ToolCall, guard: Guard | None = None, secrets: PluginSecrets | None = None
    ) -> Verdict:
        overdue = await attend(record, deadline_at=call.deadline_at, grace_s=self._box.limits.grace_s, guard=guard)
        if record.size() > JUDGED_AT_ONCE:
            verdict = await asyncio.to_thread(self._judge, record, secrets, overdue=overdue)
        else:
            verdict = self._judge(record, secrets, overdue=overdue)
        if isinstance(verdict, NeverStarted):
            await asyncio.to_thread(record.discard)
        return verdict

    def _judge(self, record: CallRecord, secrets: PluginSecrets | None, *, overdue: bool) -> Verdict:
        """`secrets`: None to read them from the record."""
        found = record.read()
        return judge(
            CallRemains(
                found=found,
                same_boot=record.same_boot,
                overdue=overdue,
                secrets=secrets or PluginSecrets(_config_in(found), self._named),
                output_bytes=self._box.limits.output_bytes,
            )
        )


def _config_in(found: Mapping[str, bytes]) -> Config:
    with contextlib.suppress(KeyError, ValueError):  # a power cut may have taken it
        return dict(json.loads(found["request"])["config"])
    return {}


def _with_records_closed(box: Box, folder: Path) -> Box:
    return replace(box, closed=(*box.closed, *(folder.resolve() / name for name in (CALLS, PLACES))))


def _request(call: ToolCall, config: Config) -> bytes:
    """The request as Ductile writes it: `handle` gets the payload as the event of an API call."""
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


async def box_findings(box: Box, plugins: Iterable[InstalledPlugin], folder: Path | None = None) -> Sequence[Finding]:
    """Describes the boundary, and tries to start a plugin in it. `folder`: for the trial's own files."""
    boundary = box.boundary.describe()
    for plugin in islice(plugins, 1):
        if why := await _refusal(box, plugin, folder):
            text = f"{boundary}: {plugin.manifest.name} cannot begin there: {why}"
            return [Finding(name="plugins", mark="wrong", text=text, remedy=UNBEGUN)]
    if box.boundary.files != "none" or box.boundary.user:
        return [Finding(name="plugins", mark="ok", text=boundary)]
    text = f"{boundary}: the stores and settings of the services are in their reach"
    return [Finding(name="plugins", mark="warning", text=text, remedy=OPEN)]


async def _refusal(box: Box, plugin: InstalledPlugin, folder: Path | None) -> str:
    script = f": <{shlex.quote(str(plugin.entrypoint))} && : >own"
    with tempfile.TemporaryDirectory(prefix=".trying-", dir=folder) as made:
        place = Path(made)
        try:
            ready = OrderCache(_with_records_closed(box, place)).of(plugin.folder, SHELL, plugin.config)
            guards = GuardPool(place / PLACES, box.environment)
            with CallRecords(place / CALLS, boot_id="now").create("trying", script.encode()) as (record, descriptor):
                guard = guards.start(ready, record.path.name, descriptor, time.monotonic() + WITHIN.total_seconds())
            deadline = datetime.now(UTC) + WITHIN
            await attend(record, deadline_at=deadline, grace_s=box.limits.grace_s, guard=guard)
            guard.leave()
        except OSError as error:
            return str(error)
        found = record.read()
        if found.get("exit", b"").startswith(b"0 ") and "stopped" not in found:
            return ""
        why = found.get("unbegun") or found.get("stderr", b"")[-1000:]
        return why.decode(errors="replace").strip() or "it does not end"


class InProcessTools:
    finds_anywhere = False

    async def run(self, call: ToolCall, begin: Begin) -> Verdict:
        await begin()
        return ToolOutcome("ok", text=f"{call.command} was given {len(call.payload)} arguments", output=call.payload)

    async def resume(self, call: ToolCall) -> Verdict:
        return Unknown(f"the gateway ended while {call.plugin} {call.command} may have been running inside it")

    async def forget(self, key: str) -> None:
        """Nothing is kept."""


def in_process_manifests() -> Mapping[str, PluginDescription]:
    about = "Gives its arguments back. Runs inside the gateway, for benchmarks and tests."
    types: dict[str, Literal["read", "write"]] = {"handle": "read", "write": "write"}
    commands = tuple(
        PluginCommand(name=name, type=tier, description=f"A {tier}.", input_schema={"type": "object"})
        for name, tier in types.items()
    )
    return {"echo": PluginDescription(name="echo", description=about, output="trusted", commands=commands)}
