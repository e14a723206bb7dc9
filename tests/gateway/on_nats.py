"""The bus that the gateway needs, on a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from agent_service.bus.topology import topology
from ductile_gateway.bus import incoming
from ductile_gateway.calls.relay import Relay
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.topology import set_up
from schemas import keys, subjects
from schemas.events import ToolRequest, ToolResult
from tests.gateway.parts import message_of, result_in
from tests.kit.stack import messages

ACK_WAIT = 5.0


async def a_bus(link: NatsLink, *, ack_wait: float = ACK_WAIT) -> None:
    """The topology of the service, with a shorter time to redelivery."""
    sooner = {"ack_wait": ack_wait}
    made = topology(max_gib=1)
    await set_up(
        link, tuple(replace(one, settings={**one.settings, **sooner}) if one.consumer else one for one in made)
    )


async def send(link: NatsLink, request: ToolRequest, route: str = "jina-reader") -> None:
    subject, body, headers = message_of(request, route)
    key = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    await link.publish(subject, body, msg_id=key, headers=headers)


def requests_of(link: NatsLink, relay: Relay) -> PullLoop:
    return incoming.request_loop(link, relay, trust=None, slots=8, grace_s=1)


@contextlib.asynccontextmanager
async def consuming(link: NatsLink, relay: Relay) -> AsyncIterator[None]:
    """The relay at work, as after a start."""
    loop = requests_of(link, relay)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (relay.republish(), loop.run())]
        yield
        for task in tasks:
            task.cancel()


async def all_acknowledged(link: NatsLink) -> bool:
    """True if no request waits, and none is in hand."""
    info = await link.client.jetstream().consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
    return (info.num_pending, info.num_ack_pending) == (0, 0)


async def results(link: NatsLink) -> list[ToolResult]:
    return [result_in(message.body) async for message in messages(link, subjects.TOOL_RESULT)]


async def dead_letters(link: NatsLink) -> list[bytes]:
    """The bodies of all requests that could not be taken up."""
    return [message.body async for message in messages(link, subjects.DEAD_LETTERS_TOOLS)]
