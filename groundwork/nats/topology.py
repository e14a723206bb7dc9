"""Specifications of streams and consumers, their deviations on a server, and the setup that removes these.

Only the settings that a specification names are compared. They have the names and units (seconds, bytes) of
nats.js.api's StreamConfig and ConsumerConfig; enumerations are given as their strings. A server cannot change the
`persist_mode` of a stream: such a stream is made anew, with its consumers and without its messages. A watch notices
streams that lost messages.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from nats.js.api import ConsumerConfig, StreamConfig

from groundwork.nats.link import BUDGET_SECONDS, NatsLink
from groundwork.nats.publishing import NoSuchItem, NoSuchStream, subject_matches
from groundwork.service.errors import Failure, NoRoom, TryAgain

Json = dict[str, Any]
Recover = Callable[[bool], Awaitable[None]]
"""Recovers from a start, or with True from a possible loss of messages. Raises TryAgain."""

LISTS = ("subjects", "filter_subjects")
"""Lists that may hold more than the specification: only missing entries count as a deviation, and are added."""
MODE = "persist_mode"
_TIMES = frozenset({"max_age", "duplicate_window", "ack_wait"})
_DEFAULTS = ("none", "default")
"""Server's spellings of a setting that was left out."""
LOOK_AGAIN_S = 0.5
"""Pause between attempts to read watched streams and to recover, until both succeed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spec:
    """A stream, or with `consumer` a consumer of it."""

    stream: str
    settings: Mapping[str, Any]
    consumer: str = ""

    @property
    def what(self) -> str:
        return f"consumer {self.consumer} of stream {self.stream}" if self.consumer else f"stream {self.stream}"

    def api(self, verb: str) -> str:
        return f"CONSUMER.{verb}.{self.stream}.{self.consumer}" if self.consumer else f"STREAM.{verb}.{self.stream}"

    def config(self) -> Json:
        if self.consumer:
            return ConsumerConfig(name=self.consumer, durable_name=self.consumer, **self.settings).as_dict()
        return StreamConfig(name=self.stream, **self.settings).as_dict()


Topology = tuple[Spec, ...]
"""Streams, and behind them consumers."""


_OF_BUCKETS = {"discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}


def object_bucket(name: str, settings: Mapping[str, Any]) -> Spec:
    """Stream of an object-store bucket (NATS ADR-20)."""
    return Spec(f"OBJ_{name}", {**settings, **_OF_BUCKETS, "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"]})


def key_value_bucket(name: str, settings: Mapping[str, Any]) -> Spec:
    """Stream of a bucket of keys, each with its newest value (NATS ADR-8)."""
    own = {"subjects": [f"$KV.{name}.>"], "max_msgs_per_subject": 1, "deny_delete": True}
    return Spec(f"KV_{name}", {**settings, **_OF_BUCKETS, **own})


@dataclass(frozen=True, slots=True)
class Deviation:
    """`created`, `changed` and `remade` are done. For a field of LISTS, `expected` has the missing entries."""

    kind: Literal["missing", "differs", "created", "changed", "remade"]
    what: str
    field: str = ""
    expected: str = ""
    actual: str = ""


async def check_topology(link: NatsLink, topology: Topology) -> list[Deviation]:
    """Changes nothing. Raises Misconfigured or TryAgain when the server cannot be asked."""
    found = await asyncio.gather(*(info_of(link, spec) for spec in topology))
    return [one for spec, info in zip(topology, found, strict=True) for one in _differences(spec, info)]


async def set_up(
    link: NatsLink, topology: Topology, *, changes: Callable[[Deviation], bool] = lambda _: False
) -> list[Deviation]:
    """Creates what is missing and makes the changes for which `changes` returns True. Returns what was done, and the
    differences that are left. Raises Failure; TryAgain once servers had time enough to elect a leader."""
    clock, left, done = asyncio.get_running_loop().time, list(topology), list[Deviation]()
    until = clock() + BUDGET_SECONDS
    while left:
        try:
            done += await _set_up(link, left[0], changes)
            del left[0]
        except TryAgain as error:
            if isinstance(error, NoRoom) or clock() >= until:
                raise
            await asyncio.sleep(error.delay_s / 2)
    return done


async def info_of(link: NatsLink, spec: Spec) -> Json | None:
    """The server's description; None where it is missing. Raises Misconfigured and TryAgain."""
    try:
        return await link.ask_jetstream(spec.api("INFO"))
    except (NoSuchStream, NoSuchItem):
        return None


async def _set_up(link: NatsLink, spec: Spec, changes: Callable[[Deviation], bool]) -> Iterable[Deviation]:
    info, wanted = await info_of(link, spec), spec.config()
    if info is None:
        await _make(link, spec, wanted)
        return [Deviation("created", spec.what)]
    found, config = _differences(spec, info), info["config"]
    taken = [one for one in found if changes(one)]
    if any(one.field == MODE for one in taken):
        return [await _remake(link, spec)]
    fields = {one.field: wanted.get(one.field) for one in taken}
    fields |= {name: [*config[name], *_lacking(wanted, config, name)] for name in LISTS if name in fields}
    if fields:
        await _make(link, spec, config | fields, update=True)
    changed = (replace(one, kind="changed", expected=_shown(one.field, fields)) for one in taken)
    return [*changed, *(one for one in found if one not in taken)]


async def _make(link: NatsLink, spec: Spec, config: Json, *, update: bool = False) -> None:
    if spec.consumer:  # without an action, the server would silently change an existing consumer
        config = {"stream_name": spec.stream, "config": config, "action": "update" if update else "create"}
    await link.ask_jetstream(spec.api("UPDATE" if update and not spec.consumer else "CREATE"), config)


async def _remake(link: NatsLink, spec: Spec) -> Deviation:
    """If it is interrupted, the next setup creates what is missing, except for consumers that it does not know."""
    consumers = (await link.ask_jetstream(f"CONSUMER.LIST.{spec.stream}"))["consumers"]
    await link.ask_jetstream(spec.api("DELETE"))
    await _make(link, spec, spec.config())
    for consumer in consumers:
        await _make(link, Spec(spec.stream, {}, consumer["name"]), consumer["config"])
    return Deviation("remade", spec.what, expected=", ".join(consumer["name"] for consumer in consumers))


def _differences(spec: Spec, info: Json | None) -> list[Deviation]:
    if info is None:
        return [Deviation("missing", spec.what)]
    wanted, config, found = spec.config(), info["config"], list[Deviation]()
    for name in spec.settings:
        more = _lacking(wanted, config, name) if name in LISTS else []
        if more or (name not in LISTS and _comparable(wanted.get(name)) != _comparable(config.get(name))):
            actual = _shown(name, config) if config.get(name) else ""
            found.append(Deviation("differs", spec.what, name, ", ".join(more) or _shown(name, wanted), actual))
    return found


def _lacking(wanted: Json, config: Json, name: str) -> list[str]:
    """Subjects of `wanted` that `config` does not cover; a config without a list covers all."""
    there = config.get(name) or [">"]
    return [one for one in wanted.get(name) or () if not any(subject_matches(pattern, one) for pattern in there)]


def _comparable(value: object) -> object:
    """Normalized: the server may reorder lists, and leaves out false and empty values."""
    if isinstance(value, list | tuple):
        return sorted(map(str, value)) or None
    return None if value in _DEFAULTS else value or None


def _shown(name: str, config: Json) -> str:
    value = config.get(name)
    if name == "republish" and value:
        return f"{value.get('src')} to {value.get('dest')}"
    if name in _TIMES and value:
        return f"{value / 1e9:g} s"
    return "as the server sets it" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class StreamSight:
    """State of a stream as read after `reconnects`."""

    reconnects: int
    created: str
    first_seq: int
    last_seq: int

    def may_have_lost(self, before: "StreamSight") -> bool:
        """True if messages that were there at `before` may be missing, other than by their age."""
        if (self.reconnects, self.created) != (before.reconnects, before.created) or self.last_seq < before.last_seq:
            return True
        had_any = 0 < before.first_seq <= before.last_seq
        return self.first_seq > (before.last_seq if had_any else before.last_seq + 1)


async def watch_streams(
    link: NatsLink, streams: Collection[str], recover: Recover, *, every_s: float, reconnects: int = 0
) -> None:
    """Calls `recover` now, and whenever one of the streams may have lost messages since the link had `reconnects`,
    until it raises no TryAgain. Runs forever."""
    seen: dict[str, StreamSight] = {}
    lost, recovered = False, False
    while True:
        now = {name: sight for name in streams if (sight := await _look(link, name))}
        for name, sight in now.items():
            lost |= sight.may_have_lost(seen.get(name, replace(sight, reconnects=reconnects)))
        seen |= now
        if now and (lost or not recovered):
            try:
                await recover(lost)
                lost, recovered = False, True
            except TryAgain as error:
                recovered = False
                log.warning("the bus is not informed yet", extra={"why": str(error)})
        await link.until_back(within_s=every_s if recovered and len(now) == len(streams) else LOOK_AGAIN_S)


async def _look(link: NatsLink, stream: str) -> StreamSight | None:
    if not link.connected:
        return None
    reconnects = link.reconnects
    try:
        info = await link.ask_jetstream(f"STREAM.INFO.{stream}")
        return StreamSight(reconnects, info["created"], info["state"]["first_seq"], info["state"]["last_seq"])
    except (Failure, KeyError):  # there is no such stream now, or no answer
        return None
