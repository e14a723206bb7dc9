"""Lets callers in: by the bus, where a gateway asks whether runs go on; then by HTTP, which takes longer to load."""

import asyncio
import socket

from agent_service.api.desk import Desk, Executors, Freshness, Switch, at_once
from agent_service.api.micro_service import serve_on_bus
from agent_service.background import Background
from agent_service.bootstrap import Agent, Http
from agent_service.bus.gateway import NatsCallbacks, NatsTroubles
from groundwork.telemetry.metrics import Instruments


async def let_callers_in(
    agent: Agent,
    background: Background,
    group: asyncio.TaskGroup,
    listener: socket.socket,
    observed: Instruments,
    http: Http,
) -> None:
    link, store = agent.ground.link, agent.store
    executors = Executors(skills=agent.skills, troubles=NatsTroubles(link), callbacks=NatsCallbacks(link))
    desk, switch = Desk(store, store, store.inbox, agent.intake, executors, background), Switch(agent.halting)
    fresh = Freshness(store.caught_up).wait if agent.settings.shared else at_once
    await serve_on_bus(link, desk, agent.signing, switch, fresh=fresh)
    group.create_task(http(agent, desk, switch, fresh, observed, listener), name="http")
