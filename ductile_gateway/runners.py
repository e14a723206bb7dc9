"""Who carries out calls, as the settings say: our own plugin processes, Ductiles, or an echo inside this process."""

import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.runner import Queue, open_ductiles
from ductile_gateway.ductile.starts import ToldOfSent, untold
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.in_process import InProcessTools
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.ports import ToolRunner
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.opening import Stores
from ductile_gateway.tools.toolbox import Tools

NO_QUEUES: Mapping[str, Queue] = {}

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def opened(
    settings: GatewaySettings,
    tools: Tools,
    *,
    stores: Stores,
    folder: Path,
    queues: Mapping[str, Queue] = NO_QUEUES,
    told: ToldOfSent = untold,
) -> AsyncIterator[ToolRunner]:
    """`queues`: by the name of a Ductile, how many jobs it is known to have."""
    if settings.runner == "ductile":
        async with open_ductiles(
            settings.every_ductile(),
            tools.ductiles,
            receipts=stores.receipts,
            overdue=stores.overdue,
            clock=SystemClock(),
            queues=queues,
            told=told,
        ) as runner:
            yield runner
    elif settings.runner == "in_process":
        yield InProcessTools()
    else:
        environment = plugin_environment(os.environ, settings.plugins.environment, python=Path(sys.executable))
        box = box_of(settings.plugins, environment)
        log.info("plugins run in a box", extra={"boundary": box.boundary.told()})
        yield LocalPlugins(tools.plugins, state_dir=folder, environment=environment, box=box)
