"""What exists on a server is given the settings that were added to its specification after it was made.

Only what is not set is set, what loses messages is corrected, and only what a list of subjects lacks is added to it;
nothing else of a stream or consumer is touched, also what this version does not know. What somebody has set otherwise
is a finding of `topology`, and left as it is.
"""

import json
from collections.abc import Mapping
from typing import Any

from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import APIError

from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    ADDED,
    CORRECTED,
    LISTS,
    ConsumerSpec,
    Deviation,
    StreamSpec,
    Topology,
    asked,
    create_missing,
    lacking,
    shown,
)

NOT_THERE = frozenset({10014, 10059})
"""JetStream's errors for a consumer and a stream that do not exist: those are for whoever creates them."""

Json = dict[str, Any]


async def set_up(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Complete what exists and create what is missing. The findings tell what was done, and what differs, which is left
    as it is. Raises as `create_missing`."""
    return [*await complete(link, wanted), *await create_missing(link, wanted)]


async def complete(link: NatsLink, topology: Topology) -> list[Deviation]:
    """Returns what was set. Raises Misconfigured and TryAgain as `check_topology` does."""
    streams = [finding for spec in topology.all_streams() for finding in await _complete_stream(link, spec)]
    return streams + [finding for spec in topology.consumers for finding in await _complete_consumer(link, spec)]


async def _complete_stream(link: NatsLink, spec: StreamSpec) -> list[Deviation]:
    config = await config_of(link, spec.what, f"$JS.API.STREAM.INFO.{spec.name}")
    added = _added(config, StreamConfig(**spec.settings).as_dict())
    if not added:
        return []
    await asked(link, spec.what, answer_of(link, f"$JS.API.STREAM.UPDATE.{spec.name}", config | added))
    return _changed(spec, config, added)


async def _complete_consumer(link: NatsLink, spec: ConsumerSpec) -> list[Deviation]:
    config = await config_of(link, spec.what, f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.name}")
    added = _added(config, ConsumerConfig(**spec.settings).as_dict())
    if not added:
        return []
    request = {"stream_name": spec.stream, "config": config | added, "action": "update"}
    await asked(link, spec.what, answer_of(link, f"$JS.API.CONSUMER.CREATE.{spec.stream}.{spec.name}", request))
    return _changed(spec, config, added)


async def config_of(link: NatsLink, what: str, subject: str) -> Json:
    """As the server tells it; empty where there is none."""
    found: Json = (await asked(link, what, answer_of(link, subject))).get("config", {})
    return found


async def answer_of(link: NatsLink, subject: str, request: Json | None = None) -> Json:
    """What JetStream says; nothing where there is no such thing. Raises APIError for any other refusal."""
    answer: Json = json.loads(await link.request(subject, json.dumps(request).encode() if request else b""))
    error = answer.get("error", {})
    if error and error.get("err_code") not in NOT_THERE:
        raise APIError(**error)
    return {} if error else answer


def _added(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """What of `wanted` is to be set on something that exists."""
    unset = {name: wanted[name] for name in ADDED if config and wanted.get(name) and not config.get(name)}
    named = [name for name in CORRECTED if config and wanted.get(name)]
    harmful = {name: wanted[name] for name in named if wanted[name] != config.get(name)}
    longer = {name: lacking(wanted.get(name), config.get(name)) for name in LISTS}
    return unset | harmful | {name: [*config[name], *more] for name, more in longer.items() if more}


def _changed(spec: StreamSpec | ConsumerSpec, before: Mapping[str, Any], added: Mapping[str, Any]) -> list[Deviation]:
    return [
        Deviation("changed", spec.what, name, _words(name, value, spec), _words(name, before.get(name), spec))
        for name, value in added.items()
    ]


def _words(name: str, value: Any, spec: StreamSpec | ConsumerSpec) -> str:
    if not value:
        return ""
    return shown(value if name in (*LISTS, *CORRECTED) else spec.settings[name])
