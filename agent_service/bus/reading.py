"""Reads the headers of a stream's messages, in order, up to the newest that is there when the reading begins."""

from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from agent_service.telling.letters import Stored
from groundwork.nats.delivery import read_delivery
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import asked
from groundwork.service.errors import Misconfigured, TryAgain

NEXT_WITHIN_S = 5.0
AT_ONCE = 256
PASSING: Mapping[str, Any] = {
    "headers_only": True,
    "ack_policy": AckPolicy.NONE,
    "num_replicas": 1,
    "mem_storage": True,
    "inactive_threshold": 30.0,
}
"""Of a consumer that lasts as long as somebody reads. Not the client's ordered one: it takes subjects of the form
`$JS.ACK.DOMAIN.ACCOUNT…` (NATS ADR-15) for gaps, and begins anew for ever (nats-py 2.16)."""
NO_STREAM = 10059

T = TypeVar("T")


async def headers_of(link: NatsLink, stream: str, subject: str, start: ConsumerConfig) -> AsyncGenerator[Stored, None]:
    """Those of the subject from where `start` begins, without bodies. Raises TryAgain and Misconfigured."""
    config = replace(start, **PASSING)
    reading = link.jetstream.pull_subscribe(subject, stream=stream, config=config)
    subscription = await of_stream(link, stream, reading)
    try:
        left, come = (await subscription.consumer_info()).num_pending or 0, 0
        while left:
            for message in await subscription.fetch(min(left, AT_ONCE), timeout=NEXT_WITHIN_S):
                come += 1
                left = message.metadata.num_pending
                yield _delivered(message, come)
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


def _delivered(message: Msg, place: int) -> Stored:
    """Raises a TimeoutError where the one before it in its place did not come."""
    if read_delivery(message).consumer_seq != place:
        raise nats.errors.TimeoutError
    headers = message.headers or {}
    return Stored(
        subject=message.subject,
        seq=message.metadata.sequence.stream,
        at=message.metadata.timestamp,
        headers=headers,
        size=int(headers.get("Nats-Msg-Size", 0)),
    )
