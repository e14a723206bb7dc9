"""A NATS micro service (NATS ADR-32) of the installed version: `nats micro ls` lists it, and it answers requests."""

import asyncio

from nats.micro.service import Service, ServiceConfig

from groundwork.nats.link import NatsLink
from groundwork.service.installed import installed_version

CONFIRMED_WITHIN_S = 1.0


async def micro_service(link: NatsLink, *, name: str, description: str) -> Service:
    """A service without endpoints yet, which answers until it is stopped. That the server has heard of it is not waited
    for: where the connection is lost at this moment, the client subscribes again by itself."""
    service = Service(link.client, ServiceConfig(name=name, version=installed_version(), description=description))
    starting = asyncio.create_task(service.start())
    starting.add_done_callback(_forget)
    await asyncio.wait({starting}, timeout=CONFIRMED_WITHIN_S)  # cancelled, it would break the client's reading
    return service


def _forget(starting: "asyncio.Task[None]") -> None:
    if not starting.cancelled():
        starting.exception()
