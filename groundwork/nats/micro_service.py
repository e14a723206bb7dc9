"""A micro service on the bus, and its askers. It is loaded once runs go on.

A server names askers of another account in the header `Nats-Request-Info`, which no client can forge there: such a
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
_FROM_ANOTHER_ACCOUNT = "_R_."


def asker(request: Request) -> str:
    """Such as `bus user ann of SHOP`; `bus` where NATS tells no more."""
    told = _told(request)
    account, user = told.get("acc"), told.get("user")
    named = f" user {user}" if user else ""
    return f"bus{named} of {account}" if account else "bus"


def _told(request: Request) -> dict[str, object]:
    reply = request._msg.reply  # the library shows it nowhere else
    if not reply.startswith(_FROM_ANOTHER_ACCOUNT):
        return {}
    try:
        told = json.loads((request.headers or {}).get(INFO, "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


CONFIRMED_WITHIN_S = 1.0
S = TypeVar("S", bound=Service)


async def micro_service(kind: type[S], link: NatsLink, *, name: str, description: str) -> S:
    """A service without endpoints yet. The server's answer is not waited for: the client subscribes again by itself."""
    service = kind(link.client, ServiceConfig(name=name, version=installed_version(), description=description))
    starting = asyncio.create_task(service.start())
    starting.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({starting}, timeout=CONFIRMED_WITHIN_S)  # cancelled, it would break the client's reading
    return service
