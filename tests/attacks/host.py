"""A service with its files that runs a malicious plugin, in its box or as a twin without one."""

import asyncio
import contextlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import ToolOutcome, Verdict
from ductile_gateway.plugins.box import boundaries
from ductile_gateway.plugins.box.order import ProcessLimits
from ductile_gateway.plugins.boxes import Boundary, box_of
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.settings import load
from tests.attacks.twins import loop
from tests.gateway.parts import a_tool_call, unrecorded

PLUGINS = Path(__file__).parent / "plugins"
SMALL = ProcessLimits(cpu_s=1, memory_mb=96, file_mb=4, processes=12, open_files=32, output_mb=1, grace_s=0.3)
NAMED = ["gateway.nk", "tls/key.pem", "elsewhere/owner.token"]
"""Files that the settings name."""
FILES = [
    *("gateway.keys", "agent/runs.db", "gateway/ledger.db", "agentic.yaml", "agent.keys", "home/.ssh/id_ed25519"),
    *(*NAMED, "nats.conf", "jetstream/blocks"),
]
REQUEST = "gateway/calls/0/request"
SECRET = "the-content-that-no-plugin-sees"  # noqa: S105 - no secret of anybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The plugin is in a box if `protected`."""

    folder: Path
    protected: bool
    plugins: LocalPlugins

    async def turned(self, code: str, *, seconds: float = 20, **given: Any) -> Any:
        """Content of `loot` after the plugin's code ran; None if it failed."""
        code = "\n".join([*(f"{name} = {value!r}" for name, value in given.items()), code])
        if self.protected:
            verdict = await self.run(code, seconds=seconds)
            return verdict.output["loot"] if isinstance(verdict, ToolOutcome) and verdict.output else None
        rogue, request = self.folder / "plugins" / "rogue", {"command": "strike", "payload": {"code": code}}
        written = await asyncio.to_thread(loop.called, rogue, request, self.folder)
        with contextlib.suppress(ValueError):
            return json.loads(written)["output"]["loot"]
        return None

    async def run(self, code: str, *, seconds: float = 20) -> Verdict:
        call = a_tool_call("rogue", "strike", {"code": code}, within_s=seconds)
        try:
            return await self.plugins.run(call, unrecorded)
        finally:
            await self.plugins.forget(call.key)


def host(folder: Path, monkeypatch: pytest.MonkeyPatch, *, protected: bool, view: bool = False, **more: Any) -> Host:
    """`view` includes root, which is refused: root holds every user."""
    shutil.copytree(PLUGINS, folder / "plugins")
    innocent = shutil.copytree(PLUGINS / "rogue", folder / "plugins" / "innocent") / "manifest.yaml"
    innocent.write_text(innocent.read_text().replace("name: rogue", "name: innocent"))
    for name in (*FILES, REQUEST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    config = folder / "agentic.yaml"
    plugins: dict[str, Any] = {"folders": [str(folder / "plugins")]} | more
    gateway: dict[str, Any] = {"store": str(folder / "gateway"), "plugins": plugins}
    pem = str(folder / "tls" / "key.pem")
    gateway["nats"] = {"nkey_seed_file": str(folder / "gateway.nk"), "tls_cert": pem, "tls_key": pem}
    agent: dict[str, Any] = {"store": str(folder / "agent"), "keys_file": str(folder / "agent.keys")}
    agent["http"] = {"tokens": [{"name": "owner", "token_file": str(folder / "elsewhere" / "owner.token")}]}
    (folder / "nats.conf").write_text(f'password: {SECRET}\njetstream {{\n  store_dir: "{folder}/jetstream"\n}}\n')
    config.write_text(json.dumps({"agent": agent, "gateway": gateway}) + f"\n# {SECRET}\n")
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    box = replace(box_of(load(config).plugins), limits=SMALL)
    box = replace(box, boundary=Boundary("view", abi=boundaries.landlock_abi())) if view else box
    known = discover_plugins([folder / "plugins"], {}).plugins
    runner = LocalPlugins(known, state_dir=folder / "gateway", box=box)
    return Host(folder=folder, protected=protected, plugins=runner)
