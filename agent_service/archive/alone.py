"""For commands that change what an agent keeps: the store and the bus, with no agent at work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from agent_service.bus.topology import ROLE, check
from agent_service.settings import AgentSettings
from groundwork.nats import link as nats_link
from groundwork.nats.lease import Record, look, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.service import store_folder
from groundwork.service.errors import Misconfigured
from groundwork.service.store_folder import AlreadyRunning, process_lock

CONNECT_WITHIN_S = 5.0
LOOK_S = 0.2


@asynccontextmanager
async def bus_at_hand(of: AgentSettings) -> AsyncIterator[NatsLink]:
    link = await nats_link.connect(of.nats, name="agentic-cli", timeout_s=CONNECT_WITHIN_S)
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def alone(loaded: AgentSettings) -> AsyncIterator[NatsLink]:
    """On a bus that has been set up. Raises Misconfigured, also where an agent is at work."""
    async with AsyncExitStack() as opened:
        folder = loaded.cache if loaded.shared else loaded.store
        store_folder.closed(folder)
        try:
            opened.enter_context(process_lock(folder))
        except AlreadyRunning as error:
            raise Misconfigured(f"{error}. Nothing was changed") from error
        link = await opened.enter_async_context(bus_at_hand(loaded))
        await check(link, shared=loaded.shared)
        await refuse_at_work(link)
        yield link


async def refuse_at_work(link: NatsLink) -> None:
    """Raises Misconfigured where an agent renews its lease; the leases of dead ones must lapse."""
    seen: dict[str, int] = {}
    while living := await _not_free(link):
        renewed = [record.owner for record in living if seen.setdefault(record.owner.holder, record.seq) != record.seq]
        if renewed:
            told = "; ".join(map(str, renewed))
            raise Misconfigured(f"agents are at work: {told}. Stop them all (`agentic drain`), then run this again")
        await asyncio.sleep(LOOK_S)


async def _not_free(link: NatsLink) -> list[Record]:
    records = [await look(link, ROLE), *await look_at_all(link, ROLE)]
    return [record for record in records if record and not record.free]
