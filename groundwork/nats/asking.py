"""All answers to one question, and one value of a key-value bucket as the stream's leader has it."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import NO_MESSAGE
from groundwork.service.errors import TryAgain

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


ASK_WITHIN_S = 2.0
_REMOVED = "KV-Operation"


@dataclass(frozen=True, slots=True)
class Value:
    """The newest of a key, stored as `seq`: what a change of it is compared with."""

    body: bytes
    seq: int


async def value(link: NatsLink, bucket: str, key: str) -> bytes | None:
    answer = await _asked(link, bucket, key)
    return _body_of(answer.get("message") or {}, bucket)


async def newest(link: NatsLink, bucket: str, key: str) -> Value:
    """For a change: without a body where it was removed, 0 where there never was one. Raises TryAgain."""
    answer = await _asked(link, bucket, key)
    if answer.get("error", {}).get("err_code") == NO_MESSAGE:
        return Value(b"", 0)
    message = answer.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("seq"), int):
        raise TryAgain(f"the bucket {bucket}: {answer.get('error', {}).get('description') or 'no message came'}")
    return Value(_body_of(message, bucket) or b"", message["seq"])


async def _asked(link: NatsLink, bucket: str, key: str) -> dict[str, Any]:
    wanted = {"last_by_subj": f"$KV.{bucket}.{key}"}
    answer = await link.ask_jetstream(f"STREAM.MSG.GET.KV_{bucket}", wanted, timeout_s=ASK_WITHIN_S)
    return answer | {"error": answer.get("error") or {}}


def _body_of(message: dict[str, Any], bucket: str) -> bytes | None:
    try:
        if _REMOVED.encode() in base64.b64decode(message.get("hdrs", "")):
            return None
        return base64.b64decode(message["data"]) if "data" in message else None
    except (ValueError, TypeError, AttributeError) as error:
        raise TryAgain(f"the bucket {bucket}: not answered by JetStream") from error
