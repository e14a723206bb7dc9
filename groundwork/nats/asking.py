"""All answers to one question, and a value of a bucket, with its changes. It is read from its stream's leader:
nats-py's own key-value store reads any copy, which may be stale."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import WRONG_SEQUENCE, Refused, StoredMessage
from groundwork.service.errors import Failure, TryAgain

NO_RESPONDERS = "503"


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
            if (message.headers or {}).get("Status") == NO_RESPONDERS:
                raise TryAgain(f"{subject}: no answer")
            is_none = False
            yield message.data
    except TimeoutError:
        if is_none:
            raise TryAgain(f"{subject}: no answer within {within_s:g} s") from None
    finally:
        await subscription.unsubscribe()


_REMOVED = "KV-Operation"


async def newest(link: NatsLink, bucket: str, key: str) -> StoredMessage:
    """The value of a key as the stream's leader has it, for a change too: its body is empty where there is none, and
    its sequence 0 where there never was one. Raises TryAgain."""
    subject = f"$KV.{bucket}.{key}"
    try:
        found = await link.newest(f"KV_{bucket}", subject)
    except Failure as error:
        raise TryAgain(f"the bucket {bucket}: {error}") from error
    if found is None or _REMOVED in found.headers:
        return StoredMessage(subject, b"", seq=found.seq if found else 0)
    return found


SETTLED_S = 0.25
"""How long after it was written a value may still be read as it was before."""


async def changes(link: NatsLink, bucket: str, key: str, *, every_s: float) -> AsyncGenerator[None, None]:
    """Yields now, whenever somebody writes the value of a key, and when nothing was heard of it for so long."""
    written = asyncio.Event()

    async def heard(_: Msg) -> None:
        written.set()

    await link.subscribe(f"$KV.{bucket}.{key}", heard)
    while True:
        look_again_s = SETTLED_S if written.is_set() else every_s
        written.clear()
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(look_again_s):
                await written.wait()


async def replaced(link: NatsLink, bucket: str, key: str, body: bytes, *, after: int) -> int | None:
    """Store a value where the newest has sequence `after`; returns its own, None where another was faster. Raises
    TryAgain."""
    try:
        return await link.swap(f"$KV.{bucket}.{key}", body, after=after)
    except Refused as error:
        if error.code == WRONG_SEQUENCE:
            return None
        raise TryAgain(f"{key} cannot be written in the bucket {bucket}: {error}") from error
