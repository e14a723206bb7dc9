"""Who asks over the bus, as far as NATS itself tells.

A server tells it of requests that come from another account: `Nats-Request-Info` then names the account and, where the
import says `share: true`, the user. It writes that header itself, over what the client may have sent, and gives such a
request a reply subject that no client may use (nats-server, client.go; seen with 2.15). Of requests within the account
it tells nothing, and of stored messages neither.
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
