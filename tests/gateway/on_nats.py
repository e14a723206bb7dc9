"""The bus as the gateway needs it, on a real server: streams, consumer and bucket, requests in and results out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ductile_gateway.bus.requests import Consumption, NatsRequests, RequestObservers
from ductile_gateway.calls.relay import Relay
from ductile_gateway.trust import Trust
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import BucketSpec, ConsumerSpec, KeyValueSpec, StreamSpec, Topology, create_missing
from schemas import keys, subjects
from schemas.events import ToolRequest, ToolResult
from schemas.generate import CONSUMERS, STREAMS
from tests.gateway.parts import CATALOG, message_of, offering, result_in

DAY = 86400.0
ACK_WAIT = 5.0


async def a_bus(link: NatsLink, *, ack_wait: float = ACK_WAIT) -> None:
    """Everything that the setup of the service would create for the gateway."""
    limits = {"max_age": DAY, "duplicate_window": DAY, "discard": "new", "max_bytes": 1 << 26}
    needed = STREAMS.keys() - {subjects.STREAM_PROGRESS}
    filters = {"filter_subjects": list(CONSUMERS[subjects.DURABLE_TOOLS]), "ack_wait": ack_wait}
    topology = Topology(
        streams=tuple(StreamSpec(name, {"subjects": list(STREAMS[name])} | limits) for name in needed),
        consumers=(ConsumerSpec(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, filters),),
        buckets=(
            BucketSpec(subjects.ARTIFACT_BUCKET, {"max_bytes": 1 << 26}),
            KeyValueSpec(subjects.LEASE_BUCKET, {"max_bytes": 1 << 20}),
        ),
    )
    await create_missing(link, topology)


async def send(link: NatsLink, request: ToolRequest, route: str = "jina-reader") -> None:
    """Ask as the agent does."""
    subject, body, headers = message_of(request, route)
    key = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    await link.publish(subject, body, msg_id=key, headers=headers)


def requests_of(link: NatsLink, relay: Relay, *, trust: Trust | None = None) -> NatsRequests:
    return NatsRequests(
        link,
        relay,
        offering(CATALOG),
        Consumption(slots=8, in_progress_s=0.5, grace_s=1),
        trust=trust,
        observers=RequestObservers(heard=lambda *_: None, handled=lambda _: None),
    )


@contextlib.asynccontextmanager
async def consuming(link: NatsLink, relay: Relay) -> AsyncIterator[None]:
    """The relay at work, as after a start."""
    requests = requests_of(link, relay)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (relay.recover(), relay.say_again(), requests.run())]
        yield
        for task in tasks:
            task.cancel()


async def all_acknowledged(link: NatsLink) -> bool:
    """Whether no request waits, and none is in hand."""
    info = await link.jetstream.consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
    return (info.num_pending, info.num_ack_pending) == (0, 0)


async def results(link: NatsLink) -> list[ToolResult]:
    """All results that the stream stores, in order."""
    return [result_in(body) for body in await _bodies(link, subjects.STREAM_RESULTS, subjects.TOOL_RESULT)]


async def dead_letters(link: NatsLink) -> list[bytes]:
    """The bodies of all requests that could not be taken up."""
    return await _bodies(link, subjects.STREAM_DEAD_LETTERS, subjects.DEAD_LETTERS_TOOLS)


async def _bodies(link: NatsLink, stream: str, subject: str) -> list[bytes]:
    last = (await link.jetstream.stream_info(stream)).state.last_seq
    stored = [await link.jetstream.get_msg(stream, seq) for seq in range(1, last + 1)]
    return [message.data or b"" for message in stored if message.subject == subject]
