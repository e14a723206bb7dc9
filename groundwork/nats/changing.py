"""What exists with other settings than it should have is changed: only when a person asks for it, and has been shown.

A server changes the number of replicas, limits and consumers while they are in use. How a stream is synced (its
`persist_mode`) it changes of none: such a stream is made anew, with its consumers and without its messages. So this is
for streams alone whose messages can be said again.
"""

from collections.abc import Sequence

from nats.js.api import ConsumerConfig, StreamConfig

from groundwork.nats.completing import Json, answer_of, config_of
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import ConsumerSpec, Deviation, StreamSpec, Topology, asked, create_missing

MODE = "persist_mode"


async def change(link: NatsLink, topology: Topology, findings: Sequence[Deviation]) -> list[Deviation]:
    """Give what exists the settings of which `findings` say that they differ. Returns what was changed, and what was
    made anew. Raises Misconfigured where the server refuses, and TryAgain."""
    done: list[Deviation] = []
    for stream in topology.all_streams():
        done += await _change_stream(link, stream, _of(stream.what, findings))
    for consumer in topology.consumers:
        done += await _change_consumer(link, consumer, _of(consumer.what, findings))
    return done


def _of(what: str, findings: Sequence[Deviation]) -> list[Deviation]:
    return [finding for finding in findings if finding.kind == "differs" and finding.what == what]


async def _change_stream(link: NatsLink, spec: StreamSpec, differing: Sequence[Deviation]) -> list[Deviation]:
    if not differing:
        return []
    if any(one.field == MODE for one in differing):
        return await _remake(link, spec)
    config = await config_of(link, spec.what, f"$JS.API.STREAM.INFO.{spec.name}")
    wanted = StreamConfig(**spec.settings).as_dict()
    asking = answer_of(link, f"$JS.API.STREAM.UPDATE.{spec.name}", config | _fields(wanted, differing))
    await asked(link, spec.what, asking)
    return _told(differing)


async def _change_consumer(link: NatsLink, spec: ConsumerSpec, differing: Sequence[Deviation]) -> list[Deviation]:
    if not differing:
        return []
    config = await config_of(link, spec.what, f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.name}")
    wanted = ConsumerConfig(**spec.settings).as_dict()
    request = {"stream_name": spec.stream, "config": config | _fields(wanted, differing), "action": "update"}
    await asked(link, spec.what, answer_of(link, f"$JS.API.CONSUMER.CREATE.{spec.stream}.{spec.name}", request))
    return _told(differing)


def _fields(wanted: Json, differing: Sequence[Deviation]) -> Json:
    return {finding.field: wanted.get(finding.field) for finding in differing}


def _told(differing: Sequence[Deviation]) -> list[Deviation]:
    return [Deviation("changed", one.what, one.field, one.expected, one.actual) for one in differing]


async def _remake(link: NatsLink, spec: StreamSpec) -> list[Deviation]:
    """A setup that ends in between leaves what is missing to the next, but for consumers that it does not know."""
    consumers = await asked(link, spec.what, link.jetstream.consumers_info(spec.name))
    await asked(link, spec.what, link.jetstream.delete_stream(spec.name))
    await create_missing(link, Topology(streams=(spec,)))
    for consumer in consumers:
        request = {"stream_name": spec.name, "config": consumer.config.as_dict(), "action": "create"}
        subject = f"$JS.API.CONSUMER.CREATE.{spec.name}.{consumer.name}"
        await asked(link, f"consumer {consumer.name} of {spec.what}", answer_of(link, subject, request))
    return [Deviation("remade", spec.what, expected=", ".join(consumer.name for consumer in consumers))]
