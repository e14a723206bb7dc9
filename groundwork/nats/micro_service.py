"""A NATS micro service, and the names of its callers. Imported once runs are under way.

A server names callers of another account in the header `Nats-Request-Info`, which no client can forge there: such a
request has a reply subject that no client may use (nats-server, client.go; seen with 2.15).
"""

import asyncio
import json
from typing import TypeVar

from nats.micro.request import Request
from nats.micro.service import Service, ServiceConfig

from groundwork.nats.link import NatsLink
from groundwork.service.program import installed_version

INFO = "Nats-Request-Info"
CONFIRMED_WITHIN_S = 1.0
_OTHER_ACCOUNT_REPLY = "_R_."

S = TypeVar("S", bound=Service)


def caller_name(request: Request) -> str:
    """Such as `bus user ann of SHOP`; `bus` where NATS tells no more."""
    if not request._msg.reply.startswith(_OTHER_ACCOUNT_REPLY):  # nats-py shows it nowhere else
        return "bus"
    info = json.loads((request.headers or {}).get(INFO, "{}"))
    account, user = info.get("acc"), info.get("user")
    named = f" user {user}" if user else ""
    return f"bus{named} of {account}" if account else "bus"


async def micro_service(kind: type[S], link: NatsLink, *, name: str, description: str) -> S:
    """Starts a service without endpoints. It need not be confirmed: nats-py subscribes again after a reconnect."""
    service = kind(link.client, ServiceConfig(name=name, version=installed_version(), description=description))
    starting = asyncio.create_task(service.start())
    starting.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({starting}, timeout=CONFIRMED_WITHIN_S)  # cancelling it would break the client's reading
    return service
