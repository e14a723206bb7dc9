"""The gateway, put together: the only place where adapters are chosen. It lives until it is cancelled.

Cancelled, it takes no new requests and gives those in hand their grace; what is not done by then goes on in its own
process and is resumed at the next start.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from ductile_gateway.adapters.argument_schemas import ArgumentSchemas, schema_flaw
from ductile_gateway.adapters.ductile_api import open_api
from ductile_gateway.adapters.ductile_discovery import discover_tools
from ductile_gateway.adapters.ductile_runner import open_runner
from ductile_gateway.adapters.http_ingress_server import serve_ingress
from ductile_gateway.adapters.in_process_tools import InProcessTools, in_process_manifests
from ductile_gateway.adapters.local_plugins import LocalPlugins
from ductile_gateway.adapters.nats_artifacts import NatsArtifacts
from ductile_gateway.adapters.nats_bus import NatsBus, NatsRequests, remedy
from ductile_gateway.adapters.nats_catalog import serve_catalog
from ductile_gateway.adapters.nats_prerequisites import ack_wait, require
from ductile_gateway.adapters.plugin_folders import InstalledPlugin, PluginsMisconfigured, discover_plugins
from ductile_gateway.adapters.plugin_process import plugin_environment
from ductile_gateway.adapters.sqlite_ledger import open_ledger
from ductile_gateway.adapters.system_clock import SystemClock
from ductile_gateway.answers import Answers
from ductile_gateway.core.catalog import draw_catalog
from ductile_gateway.core.ductile_catalog import DuctileTools
from ductile_gateway.core.manifest import Manifest
from ductile_gateway.errors import Misconfigured, TryAgain
from ductile_gateway.lanes import Lanes
from ductile_gateway.outbound_service import serve_outbound
from ductile_gateway.ports import Clock, Ledger, ToolRunner
from ductile_gateway.relay import Relay
from ductile_gateway.settings import GatewaySettings
from groundwork.artifact_bucket import ArtifactBucket
from groundwork.nats_errors import BusError
from groundwork.nats_link import NatsLink, connect
from groundwork.process_lock import AlreadyRunning, ProcessLock
from schemas import subjects
from schemas.catalog import Catalog

TIDY_SECONDS = 3600.0
RECONNECT_LOOK_S = 0.5
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
        return _drawn(settings, found.manifests, ductile=found, problems=found.problems)
    if settings.runner == "in_process":
        return _drawn(settings, in_process_manifests())
    plugins = _discover(settings)
    return _drawn(settings, {name: plugin.manifest for name, plugin in plugins.items()}, plugins=plugins)


def _drawn(
    settings: GatewaySettings, manifests: Mapping[str, Manifest], *, problems: tuple[str, ...] = (), **found: Any
) -> Tools:
    choices = settings.choices()
    if settings.runner == "ductile":  # nothing of a Ductile is on offer that was not asked for
        choices = {name: choice for name, choice in (choices or {}).items() if (choice.plugin or name) in manifests}
    catalog, flaws = draw_catalog(manifests, choices, timeout_s=settings.timeout_s, schema_flaw=schema_flaw)
    return Tools(catalog, (*problems, *flaws), **found)


async def serve(settings: GatewaySettings) -> None:
    """Run the gateway until cancelled. Raises Misconfigured, Broken or TryAgain, alone or in an ExceptionGroup."""
    with _locked(settings.store):
        tools = await _tools_at_last(settings)
        for problem in tools.problems:
            log.warning("%s", problem)
        if not tools.catalog.tools:
            raise Misconfigured("there is no tool to offer: see the warnings above, and `ductile-gateway check`")
        async with (
            open_ledger(settings.store) as ledger,
            _connected(settings) as link,
            _runner(settings, tools) as runner,
        ):
            await require(link)
            await _work(settings, tools, _relay(settings, tools, ledger=ledger, link=link, runner=runner), ledger, link)


async def _tools_at_last(settings: GatewaySettings) -> Tools:
    """The tools, once Ductile answers: until then requests wait on the bus."""
    while True:
        try:
            return await find_tools(settings)
        except TryAgain as error:
            log.warning("no tools yet", extra={"why": str(error)})
            await asyncio.sleep(LOOK_FOR_TOOLS_S)


async def _work(settings: GatewaySettings, tools: Tools, relay: Relay, ledger: Ledger, link: NatsLink) -> None:
    clock, bus = SystemClock(), NatsBus(link)
    requests = NatsRequests(
        link, relay, slots=settings.slots, in_progress_s=await ack_wait(link) / 3, grace_s=settings.grace_s
    )
    async with serve_catalog(link, tools.catalog), asyncio.TaskGroup() as group:
        group.create_task(link.until_lost())
        group.create_task(_tidy(ledger, clock, timedelta(days=settings.ledger_days)))
        group.create_task(relay.recover())
        group.create_task(_keep_bus_informed(link, relay))
        group.create_task(requests.run())
        group.create_task(
            serve_ingress(
                settings.ingress,
                store=settings.store,
                bus=bus,
                artifacts=NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET)),
                clock=clock,
                connected=lambda: link.connected,
            )
        )
        # Also with nobody to tell: the first who is configured must not be told of weeks of old endings as news.
        group.create_task(serve_outbound(settings.outbound, link, settings.store, clock=clock))
        log.info("ready", extra={"tools": [offer.name for offer in tools.catalog.tools], "nats": link.server_version})


def _relay(settings: GatewaySettings, tools: Tools, *, ledger: Ledger, link: NatsLink, runner: ToolRunner) -> Relay:
    clock = SystemClock()
    artifacts = NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))
    chosen = {name: choice.concurrency for name, choice in (settings.choices() or {}).items()}
    widths = {offer.name: chosen.get(offer.name) or settings.concurrency for offer in tools.catalog.tools}
    return Relay(
        tools.catalog,
        ArgumentSchemas(tools.catalog),
        ledger=ledger,
        runner=runner,
        artifacts=artifacts,
        answers=Answers(ledger, artifacts, NatsBus(link), clock=clock),
        lanes=Lanes(widths, room=settings.slots // 2),
        clock=clock,
    )


def _discover(settings: GatewaySettings) -> Mapping[str, InstalledPlugin]:
    if not settings.plugins.folders:
        raise Misconfigured("gateway.plugins.folders names no folder: name those that hold the plugins")
    try:
        return discover_plugins(settings.plugins.folders, settings.plugins.config)
    except PluginsMisconfigured as error:
        raise Misconfigured(str(error)) from error


@contextlib.asynccontextmanager
async def _runner(settings: GatewaySettings, tools: Tools) -> AsyncIterator[ToolRunner]:
    if settings.ductile and settings.runner == "ductile":
        async with (
            open_api(settings.ductile) as api,
            open_runner(api, tools.ductile, settings.ductile, store=settings.store, clock=SystemClock()) as runner,
        ):
            yield runner
    elif settings.runner == "in_process":
        yield InProcessTools()
    else:
        environment = plugin_environment(os.environ, settings.plugins.environment, python=Path(sys.executable))
        yield LocalPlugins(tools.plugins, state_dir=settings.store, environment=environment)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(ProcessLock(folder))
        except (OSError, AlreadyRunning) as error:
            raise Misconfigured(f"gateway.store {folder} cannot be used: {error}") from error
        yield


@contextlib.asynccontextmanager
async def _connected(settings: GatewaySettings) -> AsyncIterator[NatsLink]:
    try:
        link = await connect(settings.nats.settings(subjects.SERVICE_GATEWAY))
    except BusError as error:
        raise remedy(error) from error
    try:
        yield link
    finally:
        await link.close()


async def _keep_bus_informed(link: NatsLink, relay: Relay) -> None:
    """Say again what the bus may have forgotten: now, and whenever it was away."""
    seen = -1
    while True:
        if link.connected and link.reconnects != seen:
            seen = link.reconnects
            await relay.say_again()
        await asyncio.sleep(RECONNECT_LOOK_S)


async def _tidy(ledger: Ledger, clock: Clock, age: timedelta) -> None:
    while True:
        try:
            await ledger.forget_before(clock.now() - age)
        except TryAgain as error:
            log.warning("old answers are kept for now", extra={"why": str(error)})
        await asyncio.sleep(TIDY_SECONDS)
