"""Plugin folders that change while the gateway runs: a tool that is new, changed or gone is so within a second."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ductile_gateway.plugins.folders import InstalledPlugin
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.toolbox import find_tools, offer
from groundwork.service.errors import Misconfigured

LOOK_S = 0.3

log = logging.getLogger(__name__)

Mark = tuple[str, int, int, int]
Tell = Callable[[Mapping[str, InstalledPlugin]], None]


async def follow_folders(settings: GatewaySettings, offers: Offers, tell: Tell) -> NoReturn:
    """Offer what is in the folders, until cancelled; `tell` is told the plugins. Folders in change, or gone, change
    nothing."""
    taken = before = None
    while True:
        marks = await asyncio.to_thread(_marks, settings.plugins.folders)
        if marks == before and marks != taken:
            await _take_up(settings, offers, tell)
            taken = marks
        before = marks
        await asyncio.sleep(LOOK_S)


async def _take_up(settings: GatewaySettings, offers: Offers, tell: Tell) -> None:
    try:
        tools = await find_tools(settings)
    except Misconfigured as error:
        log.warning("the tools stay as they are", extra={"why": str(error)})
        return
    tell(tools.plugins)
    offer(tools, offers)


def _marks(folders: Iterable[Path]) -> frozenset[Mark]:
    return frozenset(mark for root in folders for path in (root, *_below(root)) for mark in _mark(path))


def _below(root: Path) -> Iterator[Path]:
    for folder in (root, *_inside(root)):
        yield from _inside(folder)


def _inside(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(folder)]
    return []


def _mark(path: Path) -> Iterator[Mark]:
    with contextlib.suppress(OSError):
        told = path.lstat()
        yield str(path), told.st_mtime_ns, told.st_size, told.st_mode
