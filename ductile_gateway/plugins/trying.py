"""Whether a plugin can begin in its box: tried with a shell in the place of its program, for doctor."""

import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from ductile_gateway.plugins.boxes import Box
from ductile_gateway.plugins.call_folder import CallFolder, CallFolders
from ductile_gateway.plugins.folders import InstalledPlugin
from ductile_gateway.plugins.process import Guards, attend
from schemas.status import Finding

SHELL = Path("/bin/sh")
WITHIN = timedelta(seconds=10)
SECTION = "docs/SECURITY.md, plugins"
OPEN = f"a kernel with landlock, or run_as, keep them from it: {SECTION}"
UNBEGUN = f"give it what it needs by gateway.plugins.read, or choose another boundary: {SECTION}"


async def look_at_box(
    box: Box, plugins: Iterable[InstalledPlugin], environment: Mapping[str, str], folder: Path | None = None
) -> Sequence[Finding]:
    """What holds plugins, and whether one of them can begin there. `folder`: in which their calls have theirs."""
    told = box.boundary.told()
    for plugin in islice(plugins, 1):
        if why := await _refusal(box, plugin, environment, folder):
            text = f"{told}: {plugin.manifest.name} cannot begin there: {why}"
            return [Finding(name="plugins", mark="wrong", text=text, remedy=UNBEGUN)]
    if box.boundary.is_closed:
        return [Finding(name="plugins", mark="ok", text=told)]
    text = f"{told}: the stores and settings of the services are in their reach"
    return [Finding(name="plugins", mark="warning", text=text, remedy=OPEN)]


async def _refusal(box: Box, plugin: InstalledPlugin, environment: Mapping[str, str], folder: Path | None) -> str:
    script = f": <{shlex.quote(str(plugin.entrypoint))} && : >own"
    with tempfile.TemporaryDirectory(prefix=".trying-", dir=folder) as place:
        try:
            with CallFolders(Path(place), boot_id="").publish("trying", script.encode()) as (call, lock):
                order = box.order(
                    call.path,
                    plugin=plugin.folder,
                    entrypoint=SHELL,
                    environment=environment,
                    config=plugin.config.values(),
                    seconds=WITHIN.total_seconds(),
                )
                Guards().start(order, lock)
            ending = await attend(call, deadline_at=datetime.now(UTC) + WITHIN, grace_s=box.limits.grace_s)
        except OSError as error:
            return str(error)
        return "" if ending == "ended" and call.exit_code() == 0 else _why(call)


def _why(call: CallFolder) -> str:
    return call.unbegun() or call.stderr(1000).decode(errors="replace").strip() or "it does not end"
