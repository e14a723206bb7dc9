"""For commands that change what an agent keeps: the store and the bus, with no agent at work."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from agent_service.bus.topology import check
from agent_service.cli.at_work import nobody_at_work
from agent_service.cli.records import bus_at_hand
from agent_service.settings import AgentSettings
from groundwork.nats.link import NatsLink
from groundwork.service import private_file
from groundwork.service.errors import Misconfigured
from groundwork.service.process_lock import AlreadyRunning, ProcessLock


@asynccontextmanager
async def alone(loaded: AgentSettings) -> AsyncIterator[NatsLink]:
    """On a bus that has been set up. Raises Misconfigured, also where an agent is at work."""
    async with AsyncExitStack() as opened:
        folder = loaded.cache if loaded.shared else loaded.store
        private_file.closed(folder)
        try:
            opened.enter_context(ProcessLock(folder))
        except AlreadyRunning as error:
            raise Misconfigured(f"{error}. Nothing was changed") from error
        link = await opened.enter_async_context(bus_at_hand(loaded))
        await check(link, shared=loaded.shared)
        await nobody_at_work(link)
        yield link
