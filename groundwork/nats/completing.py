"""Changes what exists on a server and differs from its specification.

`set_up` changes only what was added to the specification later, what loses messages otherwise, and subjects that a list
lacks; `change` changes all that differs. A server cannot change the `persist_mode` of a stream: such a stream is made
anew, with its consumers and without its messages.
"""

from collections.abc import Sequence
from typing import Any

from nats.js.api import ConsumerConfig, StreamConfig

from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    ConsumerSpec,
    Deviation,
    StreamSpec,
    Topology,
    asked,
    check_topology,
    create_missing,
    lacking,
    shown,
    unrefused,
)

MODE = "persist_mode"
MENDED = ("unset", "harmful", "lacks")

Json = dict[str, Any]


async def set_up(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Complete what exists and create what is missing. Returns what was done, and what differs. Raises as
    `create_missing`."""
    found = [one for one in await check_topology(link, wanted) if one.kind in MENDED]
    return [*await change(link, wanted, found), *await create_missing(link, wanted)]


async def change(link: NatsLink, topology: Topology, findings: Sequence[Deviation]) -> list[Deviation]:
    """Apply the settings that `findings` are about. Returns what was changed or made anew. Raises Misconfigured and
    TryAgain."""
    done: list[Deviation] = []
    specs: tuple[StreamSpec | ConsumerSpec, ...] = (*topology.all_streams(), *topology.consumers)
    for spec in specs:
        differing = [one for one in findings if one.kind in (*MENDED, "differs") and one.what == spec.what]
        if isinstance(spec, StreamSpec) and any(one.field == MODE for one in differing):
            done += await _remake(link, spec)
        elif differing:
            done += await _update(link, spec, differing)
    return done


async def _update(link: NatsLink, spec: StreamSpec | ConsumerSpec, differing: Sequence[Deviation]) -> list[Deviation]:
    if isinstance(spec, StreamSpec):
        config = await _config_of(link, spec.what, f"STREAM.INFO.{spec.name}")
        fields = _fields(StreamConfig(**spec.settings).as_dict(), config, differing)
        question, request = f"STREAM.UPDATE.{spec.name}", config | fields
    else:
        config = await _config_of(link, spec.what, f"CONSUMER.INFO.{spec.stream}.{spec.name}")
        fields = _fields(ConsumerConfig(**spec.settings).as_dict(), config, differing)
        question = f"CONSUMER.CREATE.{spec.stream}.{spec.name}"
        request = {"stream_name": spec.stream, "config": config | fields, "action": "update"}
    await asked(link, spec.what, unrefused(link, question, request))
    told = {one.field: shown(fields[one.field]) if one.kind == "lacks" else one.expected for one in differing}
    return [Deviation("changed", one.what, one.field, told[one.field], one.actual) for one in differing]


def _fields(wanted: Json, config: Json, differing: Sequence[Deviation]) -> Json:
    return {
        one.field: [*config[one.field], *lacking(wanted[one.field], config[one.field])]
        if one.kind == "lacks"
        else wanted.get(one.field)
        for one in differing
    }


async def _remake(link: NatsLink, spec: StreamSpec) -> list[Deviation]:
    """A setup that ends in between leaves what is missing to the next, but for consumers that it does not know."""
    consumers = await asked(link, spec.what, link.jetstream.consumers_info(spec.name))
    await asked(link, spec.what, link.jetstream.delete_stream(spec.name))
    await create_missing(link, Topology(streams=(spec,)))
    for consumer in consumers:
        request = {"stream_name": spec.name, "config": consumer.config.as_dict(), "action": "create"}
        question = f"CONSUMER.CREATE.{spec.name}.{consumer.name}"
        await asked(link, f"consumer {consumer.name} of {spec.what}", unrefused(link, question, request))
    return [Deviation("remade", spec.what, expected=", ".join(consumer.name for consumer in consumers))]


async def _config_of(link: NatsLink, what: str, question: str) -> Json:
    config: Json = (await asked(link, what, unrefused(link, question)))["config"]
    return config
