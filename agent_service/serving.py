"""Lets callers in: by the bus, where a gateway asks whether runs go on; then by HTTP, which takes longer to load."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from agent_service.api.desk import Desk, Executors, Fresh, Freshness, Switch, at_once
from agent_service.api.micro_service import serve_on_bus
from agent_service.background import Background
from agent_service.bootstrap import Agent
from agent_service.bus.gateway import NatsCallbacks, NatsTroubles
from groundwork.telemetry.metrics import Instruments

ServeHttp = Callable[[Agent, Desk, Switch, Fresh, Instruments, socket.socket], Coroutine[Any, Any, None]]


async def let_callers_in(
    agent: Agent,
    background: Background,
    group: asyncio.TaskGroup,
    listener: socket.socket,
    observed: Instruments,
    serve_http: ServeHttp,
) -> None:
    link, store = agent.ground.link, agent.store
    executors = Executors(skills=agent.skills, troubles=NatsTroubles(link), callbacks=NatsCallbacks(link))
    desk, switch = Desk(store, store, store.inbox, agent.intake, executors, background), Switch(agent.halting)
    fresh = Freshness(store.caught_up).wait if agent.settings.shared else at_once
    await serve_on_bus(link, desk, agent.signing, switch, fresh=fresh)
    group.create_task(serve_http(agent, desk, switch, fresh, observed, listener), name="http")
