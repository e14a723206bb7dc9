"""Questions and answers: all answers to one question, a micro service and its askers, and a value of a bucket.

A server names askers of another account in the header `Nats-Request-Info`, which no client can forge there: such a
request has a reply subject that no client may use (nats-server, client.go; seen with 2.15). Values are read from the
stream's leader: nats-py's own key-value store reads any copy, which may be stale.
"""

import asyncio
import json
from collections.abc import AsyncGenerator

from nats.aio.msg import Msg
from nats.micro.request import Request
from nats.micro.service import Service, ServiceConfig

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, Refused, Stored
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.installed import installed_version

NOBODY = "503"


async def answers(link: NatsLink, subject: str, body: bytes = b"", *, within_s: float) -> AsyncGenerator[bytes, None]:
    """As they come; who knows that there are no more stops asking. Raises TryAgain where none comes in time."""
    came: asyncio.Queue[Msg] = asyncio.Queue()
    inbox, is_none = link.new_inbox(), True
    subscription = await link.subscribe(inbox, came.put)
    try:
        if not await link.send(subject, body, reply=inbox):
            raise TryAgain(f"{subject}: not connected to NATS")
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            async with asyncio.timeout_at(deadline):
                message = await came.get()
            if (message.headers or {}).get("Status") == NOBODY:
                raise TryAgain(f"{subject}: nobody answers")
            is_none = False
            yield message.data
    except TimeoutError:
        if is_none:
            raise TryAgain(f"{subject}: no answer within {within_s:g} s") from None
    finally:
        await subscription.unsubscribe()


_REMOVED = "KV-Operation"


async def newest(link: NatsLink, bucket: str, key: str) -> Stored:
    """The value of a key as the stream's leader has it, for a change too: its body is empty where there is none, and
    its sequence 0 where there never was one. Raises TryAgain."""
    subject = f"$KV.{bucket}.{key}"
    try:
        found = await link.newest(f"KV_{bucket}", subject)
    except Failure as error:
        raise TryAgain(f"the bucket {bucket}: {error}") from error
    if found is None or _REMOVED in found.headers:
        return Stored(subject, b"", seq=found.seq if found else 0)
    return found


async def replaced(link: NatsLink, bucket: str, key: str, body: bytes, *, after: int) -> int | None:
    """Store a value where the newest has sequence `after`; returns its own, None where another was faster. Raises
    TryAgain."""
    try:
        return await link.swap(f"$KV.{bucket}.{key}", body, after=after)
    except Refused as error:
        if error.code == WRONG_SEQUENCE:
            return None
        raise TryAgain(f"{key} cannot be written in the bucket {bucket}: {error}") from error


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


async def micro_service(link: NatsLink, *, name: str, description: str) -> Service:
    """A service without endpoints yet. The server's answer is not waited for: the client subscribes again by itself."""
    service = Service(link.client, ServiceConfig(name=name, version=installed_version(), description=description))
    starting = asyncio.create_task(service.start())
    starting.add_done_callback(_forget)
    await asyncio.wait({starting}, timeout=CONFIRMED_WITHIN_S)  # cancelled, it would break the client's reading
    return service


def _forget(starting: "asyncio.Task[None]") -> None:
    if not starting.cancelled():
        starting.exception()
