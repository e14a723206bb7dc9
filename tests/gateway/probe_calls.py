"""The probe plugin, run by the gateway itself: what the tests of local plugins have in common."""

import contextlib
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ductile_gateway.calls.call import ToolCall
from ductile_gateway.plugins.folders import discover_plugins
from ductile_gateway.plugins.process import Limits, plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from tests.gateway.parts import asked_for

PLUGINS = Path(__file__).parents[1] / "plugins"
KEY = "run_01:1:probe:1"
QUICK = Limits(output_bytes=256 * 1024, grace_seconds=0.5)


def local_plugins(state_dir: Path, *, config: dict[str, Any] | None = None, limits: Limits = QUICK) -> LocalPlugins:
    """A gateway's plugins, as after a start of the gateway."""
    return LocalPlugins(
        discover_plugins([PLUGINS], {"probe": config or {}}),
        state_dir=state_dir,
        environment=plugin_environment(os.environ, python=Path(sys.executable)),
        limits=limits,
    )


def probe(command: str, *, key: str = KEY, seconds: float = 20, **payload: Any) -> ToolCall:
    """A call of the probe, due in so many seconds."""
    return ToolCall(key, "probe", command, payload, datetime.now(UTC) + timedelta(seconds=seconds), asked_for())


def lines(file: Path) -> int:
    """How often the probe has recorded that it ran."""
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def group_of(state_dir: Path) -> int:
    """The process group of the only call, whose plugin has begun."""
    (began,) = state_dir.glob("calls/*/began")
    return int(began.read_text())


def living(group: int) -> list[str]:
    """The processes of a group by name, without the dead that nobody has buried yet. For Linux."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = path.read_text().rpartition(")")
            state, _, pgrp = rest.split()[:3]
            if int(pgrp) == group and state not in "ZX":
                found.append(name)
    return found
