"""The tools that there are: found where the settings say, at the start and, in a Ductile, again and again."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.catalog import DuctileTools, without_call_id
from ductile_gateway.ductile.discovery import discover_tools
from ductile_gateway.plugins.folders import Discovered, InstalledPlugin, PluginsMisconfigured, discover_plugins
from ductile_gateway.plugins.in_process import in_process_manifests
from ductile_gateway.plugins.manifest import Manifest
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import Offers, difference, draw_catalog
from groundwork.service.errors import Misconfigured, TryAgain
from schemas.catalog import Catalog

LOOK_FOR_TOOLS_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """What is on offer. `plugins` by name, where they are ours; `ductile`, where one has them.

    `problems`: what is left out, and why.
    """

    catalog: Catalog
    problems: tuple[str, ...]
    plugins: Mapping[str, InstalledPlugin] = field(default_factory=dict)
    ductile: DuctileTools = field(default_factory=DuctileTools)


async def find_tools(settings: GatewaySettings) -> Tools:
    """Look what is there, and start nothing. Raises Misconfigured; TryAgain while Ductile is away."""
    if settings.ductile and settings.runner == "ductile":
        async with open_api(settings.ductile) as api:
            found = await discover_tools(api, settings.choices() or {}, settings.ductile)
        tools = _drawn(settings, found.manifests, ductile=found, problems=found.problems)
        return replace(tools, problems=(*tools.problems, *without_call_id(tools.catalog, found)))
    if settings.runner == "in_process":
        return _drawn(settings, in_process_manifests())
    here = _discover(settings)
    manifests = {name: plugin.manifest for name, plugin in here.plugins.items()}
    return _drawn(settings, manifests, plugins=here.plugins, problems=here.left_out)


async def tools_at_last(settings: GatewaySettings) -> Tools:
    """The tools, once Ductile answers: until then requests wait on the bus. Raises Misconfigured."""
    told = ""
    while True:
        try:
            tools = await find_tools(settings)
        except TryAgain as error:
            if str(error) != told:
                told = str(error)
                log.warning("no tools yet", extra={"why": told})
            await asyncio.sleep(LOOK_FOR_TOOLS_S)
            continue
        _warn((*tools.ductile.warnings, *tools.problems))
        if not tools.catalog.tools:
            raise Misconfigured("there is no tool to offer: see the warnings above, and `ductile-gateway check`")
        return tools


async def keep_fresh(
    settings: GatewaySettings, offers: Offers, tell: Callable[[DuctileTools], None], *, every_s: float
) -> NoReturn:
    """Offer what Ductile has by now, until cancelled. A run keeps the tools with which it began.

    Where Ductile does not say, what was on offer stays so; and also where a tool is gone for the first time, because a
    Ductile that has just begun may not have found all of its plugins."""
    gone_before: list[str] = []
    told = ""
    while True:
        await asyncio.sleep(every_s)
        try:
            tools = await find_tools(settings)
        except (TryAgain, Misconfigured) as error:
            if str(error) != told:
                told = str(error)
                log.warning("the tools stay as they are", extra={"why": told})
            continue
        except Exception:  # what a Ductile says of its tools must not end the calls of those that are known
            log.exception("the tools stay as they are")
            continue
        told = ""
        changes = difference(offers.catalog, tools.catalog)
        if (gone := changes["gone"]) and gone != gone_before:
            log.warning("tools are gone, and taken out if they stay so", extra={"gone": gone})
            gone_before = gone
            continue
        gone_before = []
        tell(tools.ductile)
        offer(tools, offers)


def offer(tools: Tools, offers: Offers) -> None:
    """From now on these are on offer, and what is otherwise than before is logged."""
    _warn(problem for problem in tools.problems if problem not in offers.problems)
    changes = difference(offers.catalog, tools.catalog)
    if any(changes.values()):
        log.info("other tools are on offer", extra=changes)
    offers.replace(tools.catalog, tools.problems)


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        log.warning("%s", problem)


def _drawn(
    settings: GatewaySettings, manifests: Mapping[str, Manifest], *, problems: tuple[str, ...] = (), **found: Any
) -> Tools:
    choices = settings.choices()
    if settings.runner == "ductile":  # nothing of a Ductile is on offer that was not asked for
        choices = choices or {}
    catalog, flaws = draw_catalog(manifests, choices, timeout_s=settings.timeout_s)
    return Tools(catalog, (*problems, *flaws), **found)


def _discover(settings: GatewaySettings) -> Discovered:
    plugins = settings.plugins
    if not plugins.folders:
        raise Misconfigured("gateway.plugins.folders names no folder: name those that hold the plugins")
    seen = plugin_environment(os.environ, plugins.environment, python=Path(sys.executable))
    try:
        return discover_plugins(plugins.folders, plugins.config, search=seen["PATH"])
    except PluginsMisconfigured as error:
        raise Misconfigured(str(error)) from error
