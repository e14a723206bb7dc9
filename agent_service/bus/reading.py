"""Reads the headers of a stream's messages, in order, up to the newest that is there when the reading begins."""

from collections.abc import AsyncGenerator, Awaitable
from dataclasses import replace
from typing import TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from agent_service.telling.letters import Stored
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import asked
from groundwork.service.errors import Misconfigured, TryAgain

NEXT_WITHIN_S = 5.0
NO_STREAM = 10059
"""JetStream's error code."""

T = TypeVar("T")


async def headers_of(link: NatsLink, stream: str, subject: str, start: ConsumerConfig) -> AsyncGenerator[Stored, None]:
    """Those of the subject from where `start` begins, without bodies. Raises TryAgain and Misconfigured."""
    config = replace(start, headers_only=True)
    reading = link.jetstream.subscribe(subject, stream=stream, ordered_consumer=True, config=config)
    subscription = await of_stream(link, stream, reading)
    try:
        info = await subscription.consumer_info()
        left = (info.num_pending or 0) + (info.delivered.consumer_seq if info.delivered else 0)
        while left:
            message = await subscription.next_msg(timeout=NEXT_WITHIN_S)
            left = message.metadata.num_pending
            yield _delivered(message)
    except nats.errors.TimeoutError as error:
        raise TryAgain(f"stream {stream} stopped in the middle: ask again") from error
    finally:
        await subscription.unsubscribe()


async def of_stream(link: NatsLink, stream: str, question: Awaitable[T]) -> T:
    """The answer about a stream. Raises NotFoundError for a message that it has not, TryAgain and Misconfigured."""
    try:
        return await asked(link, f"stream {stream}", question)
    except NotFoundError as error:
        if error.err_code == NO_STREAM:
            raise Misconfigured(f"there is no stream {stream}: run `agentic setup`") from error
        raise


def _delivered(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(
        subject=message.subject,
        seq=message.metadata.sequence.stream,
        at=message.metadata.timestamp,
        headers=headers,
        size=int(headers.get("Nats-Msg-Size", 0)),
    )
