"""Agent process: starts and stops the parts of `bootstrap` in order, in one task group.

Stop order: new messages and requests, work in hand, pages, store, bus.
"""

import asyncio
import logging
import socket
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from agent_service.background import Background
from agent_service.bootstrap import Agent
from agent_service.bus.health import watch_capacity
from agent_service.bus.skills import NatsSkills
from agent_service.bus.topology import ROLE, check
from agent_service.core.waiting import Status
from agent_service.history.log_line import FOR_MACHINES
from agent_service.models.settings import open_model
from agent_service.settings import AgentSettings, load
from agent_service.store.database import FILE, MIGRATIONS
from agent_service.store.runs import RunStore
from agent_service.views.workspace.rendering import Folders
from groundwork.nats.buckets import watch_value
from groundwork.nats.topology import watch_streams
from groundwork.service import serving
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit, TryAgain
from groundwork.service.program import loaded
from groundwork.service.store_folder import HAND_OVER_S
from groundwork.sqlite.file import pending_upgrade
from schemas import subjects

INFORMED = (subjects.STREAM, subjects.STREAM_REQUESTS)
"""Streams that are watched for lost messages."""
HALT_LOOK_S = 60.0
INFORMED_S, INFORMED_AMONG_S = 10.0, 30.0
"""Intervals of that check, for a single agent and for cluster."""
UNDER_WAY = (Status.QUEUED, Status.RUNNING)

Opening = AbstractAsyncContextManager[RunStore]

log = logging.getLogger(__name__)


def run(config: Path | None, *, take_over: bool = False) -> Exit:
    """Serves until a signal. Raises Misconfigured for unusable settings, because there is no log before they are
    read."""
    settings = load(nearby(config))
    return serving.serve(settings, partial(serve, settings, take_over=take_over), aside=FOR_MACHINES)


async def serve(
    settings: AgentSettings, *, take_over: bool = False, folders: type[Folders] = Folders, http: bool = True
) -> None:
    """Serves until cancelled. `take_over`: ends the current owner of the bus. Raises Fatal if it cannot start or
    continue."""
    once = partial(_serve, settings, folders, take_over=take_over, http=http)
    await serving.keep_serving(once, who="agent", shared=settings.shared)


async def _serve(settings: AgentSettings, folders: type[Folders], *, take_over: bool, http: bool) -> None:
    """Raises LeaseLost, in an ExceptionGroup, when another agent took over."""
    # refused before another agent is ended for it
    settings.http.bearers()
    if not settings.shared:
        await asyncio.to_thread(pending_upgrade, settings.store / FILE, MIGRATIONS)
    async with AsyncExitStack() as ours:
        model = await ours.enter_async_context(open_model(settings.model))
        usable = partial(check, shared=settings.shared)
        starting = serving.service_context(ROLE, settings, usable, name=subjects.SERVICE_AGENT, take_over=take_over)
        ground = await ours.enter_async_context(starting)
        if ground.predecessor:
            log.info("another agent had the bus", extra={"who": str(ground.predecessor.owner)})
        store = await ours.enter_async_context(open_store(settings, ground))
        at, within_s = settings.http, HAND_OVER_S if take_over else 0.0
        listener = await ours.enter_async_context(serving.listening(at.host, at.port, who="agent", within_s=within_s))
        agent: Agent | None = None
        try:
            async with asyncio.TaskGroup() as group:
                agent = Agent(settings, ground, store, model, folders, Background(group))
                await _start(agent, group, listener, http=http)
        except asyncio.CancelledError:
            if agent:
                await agent.folders.flush()
                if agent.traces:
                    await agent.traces.finish()
            raise


def open_store(settings: AgentSettings, ground: serving.ServiceContext) -> Opening:
    """Opens or creates the store of the settings. Raises Misconfigured, TryAgain."""
    if settings.shared:
        shared: Opening = loaded("agent_service.store.shared:open_store")(ground)
        return shared
    return RunStore.open(settings.store, ground.lease.ensure_held, reserve=True)


async def _load_catalog(skills: NatsSkills) -> None:
    """Executors may start later than the agent."""
    with suppress(TryAgain):
        await skills.catalog()


async def _start(agent: Agent, group: asyncio.TaskGroup, listener: socket.socket, *, http: bool) -> None:
    """Resumes runs at once, after what people said of them meanwhile. Callers may connect from the start; they are
    answered once the API is loaded: not in a thread, where each file that it reads would wait for a busy event loop.
    Then the agent is ready.
    """
    started_at, reconnects = agent.clock.now(), agent.ground.link.reconnects
    await agent.halt_control.recall()
    await agent.limits.recall(agent.store, aside=agent.settings.shared)
    left = await agent.recovery.find_left()
    group.create_task(agent.receiving.run())
    await agent.receiving.people_heard.wait()
    agent.recovery.try_again()
    halts = watch_value(agent.ground.link, subjects.LEASE_BUCKET, subjects.HALT_KEY, every_s=HALT_LOOK_S)
    agent.background.start(_load_catalog, agent.skills)  # else the first run waits for it
    for work in (
        (agent.cluster or agent.recovery).keep_time(),
        agent.halt_control.keep_shown(halts),
        agent.ground.link.wait_closed(),
        watch_capacity(agent.intake.capacity, agent.ground.link, agent.ground.folder, shared=agent.settings.shared),
        *(() if agent.cluster else (agent.recovery.keep_starting(), agent.recovery.keep_trying())),
        *((agent.pruning.keep(),) if agent.settings.shared or agent.settings.keep_runs.delete_runs else ()),
    ):
        group.create_task(work)
    runs = await agent.store.counts()
    if any(runs[status] for status in UNDER_WAY):
        await serving.let_recovery_start()
    open_api = loaded("agent_service.serving:open_api")
    await open_api(agent, group, listener, http=http)
    serving.notify_ready()
    link, lease, at = agent.ground.link, agent.ground.lease, serving.address(listener)
    log.info("ready", extra={"http": at, "resumed": left, "nats": link.servers, "epoch": lease.epoch})
    if not agent.limits.spending.reached():
        agent.recovery.fire_all(await agent.store.waiting_for_budget(), agent.clock.now())
    if agent.traces:
        group.create_task(agent.traces.run())
    every_s = INFORMED_AMONG_S if agent.cluster else INFORMED_S
    recover = partial(_inform_bus, agent, started_at)
    inform = watch_streams(link, INFORMED, recover, every_s=every_s, reconnects=reconnects)
    for work in (agent.folders.run(), inform):
        group.create_task(work)


async def _inform_bus(agent: Agent, started_at: datetime, lost: bool) -> None:
    """One of several agents informs the bus. `lost`: the bus may also have lost what was published since the start."""
    forgotten_at = agent.clock.now() if lost else started_at
    if lost:
        agent.recovery.resumed.clear()
    if agent.cluster:
        await agent.cluster.inform_bus(forgotten_at)
    else:
        await agent.receiving.inform_bus(forgotten_at, agent.clock.now())
