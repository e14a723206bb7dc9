"""The probe plugin, run by the gateway itself, also in a separate process that is killed.

As a program it runs one call of the probe. Arguments: the state directory, the command and its payload.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ductile_gateway.calls.call import ToolCall
from ductile_gateway.plugins.box.order import MARK, ProcessLimits
from ductile_gateway.plugins.boxes import Box, choose_boundary, plugin_environment, program_paths
from ductile_gateway.plugins.call_record import CallRecord
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.runner import LocalPlugins
from tests.gateway.parts import OWN_RUN, a_tool_call, unrecorded

PLUGINS = Path(__file__).parents[2] / "plugins"
KEY = f"{OWN_RUN}:1:probe:1"
QUICK = ProcessLimits(output_mb=0.25, grace_s=0.5)


def local_plugins(
    state_dir: Path,
    *,
    config: dict[str, Any] | None = None,
    limits: ProcessLimits = QUICK,
    folder: Path = PLUGINS,
    environment: Collection[str] = (),
) -> LocalPlugins:
    """A gateway's plugins, as after a start of the gateway; they may write beside its calls, where tests look."""
    seen = plugin_environment(environment)
    allowed = Box().allowed
    read, write = allowed(program_paths(seen)), allowed([state_dir])
    return LocalPlugins(
        discover_plugins([folder], {"probe": config or {}}).plugins,
        state_dir=state_dir,
        box=Box(seen, limits, choose_boundary("auto", None), read, write),
    )


def probe(command: str, *, step: int = 1, seconds: float = 20, **payload: Any) -> ToolCall:
    return a_tool_call("probe", command, payload, within_s=seconds, step=step)


def records(state_dir: Path) -> list[CallRecord]:
    """Records of all calls, the oldest first."""
    return [CallRecord(path) for path in sorted(state_dir.glob("calls/*/*"), key=os.path.getmtime)]


def guards(state_dir: Path) -> list[int]:
    return [int(record.read()["began"].split()[0]) for record in records(state_dir)]


def alive(state_dir: Path) -> list[str]:
    """The processes of the only call by name, without those that have ended and are not reaped. For Linux."""
    (record,) = records(state_dir)
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (path / "stat").read_text().rpartition(")")
            mark = f"{MARK}={record.path.name}".encode()
            if mark in (path / "environ").read_bytes() and rest.split()[0] not in "ZX":
                found.append(name)
    return found


def main(state_dir: str, command: str, payload: str) -> None:
    plugins = local_plugins(Path(state_dir))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asyncio.run(plugins.run(probe(command, **json.loads(payload)), unrecorded))


if __name__ == "__main__":
    main(*sys.argv[1:])
