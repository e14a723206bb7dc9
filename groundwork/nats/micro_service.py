"""A NATS micro service. Imported once runs are under way."""

import asyncio
from typing import TypeVar

from nats.micro.service import Service, ServiceConfig

from groundwork.nats.link import NatsLink
from groundwork.service.program import installed_version

CONFIRMED_WITHIN_S = 1.0

S = TypeVar("S", bound=Service)


async def micro_service(kind: type[S], link: NatsLink, *, name: str, description: str) -> S:
    """Starts a service without endpoints. It need not be confirmed: nats-py subscribes again after a reconnect."""
    service = kind(link.client, ServiceConfig(name=name, version=installed_version(), description=description))
    starting = asyncio.create_task(service.start())
    starting.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({starting}, timeout=CONFIRMED_WITHIN_S)  # cancelling it would break the client's reading
    return service
