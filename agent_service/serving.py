"""Lets callers in: by the bus, where a gateway asks whether runs go on; then by HTTP, which takes longer to load."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agent_service.api.feed import Feed
from agent_service.api.micro import serve_on_bus
from agent_service.api.operating import SwitchCalls
from agent_service.api.runs import Executors, RunCalls
from agent_service.background import Background
from agent_service.bootstrap import Agent, Http
from agent_service.bus.findings import NatsCallbacks, NatsTroubles
from agent_service.views.journal import JournalReader
from groundwork.service.errors import TryAgain

WITHIN_S = 2.0


class Freshness:
    """Answers are as new as the shared log when the question came: `wait` lets this agent's copy catch up a while."""

    def __init__(self, caught_up: Callable[[], Awaitable[None]], *, within_s: float = WITHIN_S) -> None:
        self._caught_up = caught_up
        self._within_s = within_s
        self._begun = 0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        enough = self._begun + 1  # a look that has begun already may have been too early
        async with self._turn:
            if self._begun < enough:
                self._begun = enough
                with suppress(TryAgain, TimeoutError):
                    await asyncio.wait_for(self._caught_up(), self._within_s)


async def let_callers_in(
    agent: Agent,
    background: Background,
    group: asyncio.TaskGroup,
    listener: socket.socket,
    http: Http,
) -> None:
    link, store = agent.ground.link, agent.store
    feed, reader = Feed(store), JournalReader(store)
    agent.followers.append(feed.tell)
    executors = Executors(skills=agent.skills, troubles=NatsTroubles(link), callbacks=NatsCallbacks(link))
    runs = RunCalls(store, agent.intake, executors, background, feed, reader)
    rooms = runs, SwitchCalls(agent.halting, agent.signing)
    fresh = Freshness(store.caught_up).wait if agent.settings.shared else None
    await serve_on_bus(link, rooms, fresh=fresh)
    group.create_task(http(agent, rooms, feed, reader, fresh, listener), name="http")
