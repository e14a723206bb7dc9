"""Who asks over the bus, as far as NATS itself tells.

A server tells it of requests from another account, in the header `Nats-Request-Info`, which no client can forge there:
such a request has a reply subject that no client may use (nats-server, client.go; seen with 2.15).
"""

import json

from nats.micro.request import Request

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
