"""Plugin folders that change while the gateway runs: a tool that is new, changed or gone is so within a second."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import NoReturn

from ductile_gateway.plugins.folders import InstalledPlugin
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import find_tools, offer
from groundwork.service.errors import Misconfigured

LOOK_S = 0.3

log = logging.getLogger(__name__)

Tell = Callable[[Mapping[str, InstalledPlugin]], None]


async def follow_folders(settings: GatewaySettings, offers: Offers, tell: Tell) -> NoReturn:
    """Offer what is in the folders, until cancelled; `tell` is told the plugins. Folders in change, or gone, change
    nothing."""
    taken = before = None
    while True:
        marks = await asyncio.to_thread(_marks, settings.plugins.folders)
        if marks == before and marks != taken:
            try:
                tools = await find_tools(settings)
            except Misconfigured as error:
                log.warning("the tools stay as they are", extra={"why": str(error)})
            else:
                tell(tools.plugins)
                offer(tools, offers)
            taken = marks
        before = marks
        await asyncio.sleep(LOOK_S)


def _marks(folders: Iterable[Path]) -> frozenset[tuple[Path, int, int, int]]:
    """Of the folders, the plugins in them, and the files of these."""
    marks = set()
    for root in folders:
        for path in chain((root,), root.glob("*"), root.glob("*/*")):
            with contextlib.suppress(OSError):
                told = path.lstat()
                marks.add((path, told.st_mtime_ns, told.st_size, told.st_mode))
    return frozenset(marks)
