"""Discovers tools in plugin folders or Ductiles, follows their changes, and opens the runner of their calls."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.ductile.catalog import DuctileTools
from ductile_gateway.ductile.jobs import DuctileHealth, OnStart
from ductile_gateway.ductile.settings import DuctileSettings, full_name
from ductile_gateway.plugins.boxes import box_of, plugin_environment
from ductile_gateway.plugins.folders import InstalledPlugin, discover_plugins
from ductile_gateway.plugins.runner import InProcessTools, LocalPlugins, in_process_manifests
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.tools.catalog import ToolChoice, difference, make_catalog
from groundwork.service.errors import Failure, Misconfigured, TryAgain
from groundwork.service.program import loaded
from schemas.catalog import Catalog
from schemas.values import dataclass

LOOK_FOR_TOOLS_S = 5.0
_NOT_YET = "its tools are on offer once it does, and requests for them wait"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundTools:
    """`plugins`, `ductiles`: by name. `problems`: reasons why parts are left out. `lacking`: the same of plugins that
    nothing names and that only lack an extra. `unreachable`: errors of Ductiles that do not answer. `awaited`: the
    same by the routes of their tools."""

    catalog: Catalog
    problems: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    plugins: Mapping[str, InstalledPlugin] = field(default_factory=dict)
    ductiles: Mapping[str, DuctileTools] = field(default_factory=dict)
    unreachable: Mapping[str, Failure] = field(default_factory=dict)
    awaited: Mapping[str, str] = field(default_factory=dict)


async def find_tools(settings: GatewaySettings, known: Mapping[str, DuctileTools] = {}) -> FoundTools:
    """Starts nothing. `known`: tools of Ductiles that may not answer now. Raises Misconfigured, and TryAgain while no
    Ductile answers."""
    choices = settings.choices()
    if settings.runner == "ductile":
        return await _of_ductiles(settings, known)
    if settings.runner == "in_process":
        return FoundTools(*make_catalog(in_process_manifests(), choices, timeout_s=settings.timeout_s))
    if not (plugins := settings.plugins).folders:
        raise Misconfigured("gateway.plugins.folders names no folder: name one (`check` and `call` also take --tools)")
    search = plugin_environment(plugins.environment)["PATH"]
    here = discover_plugins(plugins.folders, plugins.config, search=search)
    manifests = {name: plugin.manifest for name, plugin in here.plugins.items()}
    named = {choice.plugin or tool for tool, choice in (choices or {}).items()} | {*plugins.config}
    lacking = tuple(why for why, refusal in here.left_out.items() if refusal.optional not in ("", *named))
    problems = (why for why in here.left_out if why not in lacking)
    catalog, flaws = make_catalog(manifests, choices, timeout_s=settings.timeout_s)
    return FoundTools(catalog, (*problems, *flaws), lacking=lacking, plugins=here.plugins)


async def _of_ductiles(settings: GatewaySettings, known: Mapping[str, DuctileTools]) -> FoundTools:
    found, errors = dict[str, DuctileTools](), dict[str, Failure]()
    discover_tools = loaded("ductile_gateway.ductile.discovery:discover_tools")  # with all that speaks HTTP

    async def ask(name: str, ductile: DuctileSettings) -> None:
        try:
            found[name] = await discover_tools(settings.choices_in(name), ductile)
        except (TryAgain, Misconfigured) as error:
            errors[name] = error

    await asyncio.gather(*(ask(*one) for one in settings.every_ductile().items()))
    if not found:
        raise next((why for why in errors.values() if isinstance(why, TryAgain)), next(iter(errors.values())))
    found |= {name: known[name] for name in errors.keys() & known.keys()}
    unreachable = {name: why for name, why in errors.items() if name not in found}
    choices, awaited = dict[str, ToolChoice](), dict[str, str]()
    for name in settings.every_ductile():
        for tool, choice in settings.choices_in(name).items():
            route = full_name(choice.plugin or tool, of=name)
            if name in unreachable:
                awaited[route] = str(unreachable[name])
            else:
                choices[tool] = choice.model_copy(update={"plugin": route})
    manifests = {name: manifest for tools in found.values() for name, manifest in tools.manifests.items()}
    catalog, flaws = make_catalog(manifests, choices, timeout_s=settings.timeout_s)
    reported = (problem for tools in found.values() for problem in tools.problems)
    missing = (f"{why}: {_NOT_YET}" for why in unreachable.values())
    return FoundTools(catalog, (*reported, *flaws, *missing), ductiles=found, unreachable=unreachable, awaited=awaited)


async def await_tools(settings: GatewaySettings) -> FoundTools:
    """Returns the tools once a Ductile answers: until then requests wait on the bus. Raises Misconfigured."""
    reported = ""
    while True:
        try:
            tools = await find_tools(settings)
            why = "; ".join(tools.problems) if tools.unreachable and not tools.catalog.tools else ""
        except TryAgain as error:
            why = str(error)
        if not why:
            break
        if why != reported:
            reported = why
            log.warning("no tools yet", extra={"why": reported})
        await asyncio.sleep(LOOK_FOR_TOOLS_S)
    _warn(tools.problems)
    if not tools.catalog.tools:
        raise Misconfigured("there is no tool to offer: see the warnings above, and `ductile-gateway check`")
    return tools


async def keep_fresh(
    settings: GatewaySettings,
    offers: Offers,
    update_runner: Callable[[Mapping[str, DuctileTools]], None],
    *,
    every_s: float,
    known: Mapping[str, DuctileTools] = {},
) -> NoReturn:
    """Offers the tools of Ductiles, until cancelled. Offers stay if a Ductile does not answer, or if tools are missing
    for the first time: a Ductile that has just started may not have found all plugins. `known`: tools found before."""
    gone_before, reported = list[str](), ""
    while True:
        await asyncio.sleep(min(every_s, LOOK_FOR_TOOLS_S) if offers.awaited else every_s)
        try:
            tools = await find_tools(settings, known)
        except Exception as error:  # an error of discovery must not end calls of known tools
            if str(error) != reported:
                reported, is_known = str(error), isinstance(error, Failure)
                log.warning("the tools stay as they are", extra={"why": reported}, exc_info=None if is_known else error)
            continue
        reported, gone = "", difference(offers.catalog, tools.catalog)["gone"]
        if gone and gone != gone_before:
            log.warning("tools are gone, and taken out if they stay so", extra={"gone": gone})
            gone_before = gone
            continue
        gone_before, known = [], tools.ductiles
        update_runner(known)
        offer(tools, offers)


def offer(tools: FoundTools, offers: Offers) -> None:
    _warn(problem for problem in tools.problems if problem not in offers.problems)
    changes = difference(offers.catalog, tools.catalog)
    if any(changes.values()):
        log.info("other tools are on offer", extra=changes)
    offers.replace(tools.catalog, tools.problems, awaited=tools.awaited)


def _warn(problems: Iterable[str]) -> None:
    for problem in problems:
        log.warning("%s", problem)


@contextlib.asynccontextmanager
async def open_runner(
    settings: GatewaySettings,
    tools: FoundTools,
    ledger: Ledger,
    folder: Path,
    *,
    healths: Mapping[str, DuctileHealth],
    on_start: OnStart,
) -> AsyncIterator[Any]:
    if settings.runner == "ductile":
        every = settings.every_ductile()
        open_ductiles = loaded("ductile_gateway.ductile.runner:open_ductiles")  # with all that speaks HTTP
        async with open_ductiles(every, tools.ductiles, ledger, healths=healths, on_start=on_start) as runner:
            yield runner
    elif settings.runner == "in_process":
        yield InProcessTools()
    else:
        box = box_of(settings.plugins)
        log.info("plugins run in a box", extra={"boundary": box.boundary.describe()})
        yield LocalPlugins(tools.plugins, state_dir=folder, box=box)


LOOK_S = 0.3


async def follow_folders(
    settings: GatewaySettings, offers: Offers, update_runner: Callable[[Mapping[str, InstalledPlugin]], None]
) -> NoReturn:
    """Offers the plugins in the folders, until cancelled. Ignores folders that are missing, or still changing."""
    taken = before = None
    while True:
        marks = await asyncio.to_thread(_marks, settings.plugins.folders)
        if marks == before and marks != taken:
            try:
                tools = await find_tools(settings)
            except Misconfigured as error:
                log.warning("the tools stay as they are", extra={"why": str(error)})
            else:
                update_runner(tools.plugins)
                offer(tools, offers)
            taken = marks
        before = marks
        await asyncio.sleep(LOOK_S)


def _marks(folders: Iterable[Path]) -> frozenset[tuple[Path, int, int, int]]:
    marks = set()
    for root in folders:
        for path in chain((root,), root.glob("*"), root.glob("*/*")):
            with contextlib.suppress(OSError):
                found = path.lstat()
                marks.add((path, found.st_mtime_ns, found.st_size, found.st_mode))
    return frozenset(marks)
