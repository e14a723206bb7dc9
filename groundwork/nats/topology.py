"""Streams, consumers and buckets that should exist: compared with what does, and created where missing.

Only the settings that a specification names are compared. They have the names and units (seconds, bytes) of
nats.js.api's StreamConfig and ConsumerConfig; enumerations are given as their strings.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import nats.errors
from nats.js.api import ConsumerConfig, ConsumerInfo, RePublish, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from groundwork.nats.link import BUDGET_SECONDS, NatsLink
from groundwork.nats.publishing import matches
from groundwork.service.errors import Failure, Misconfigured, NoRoom, TryAgain

T = TypeVar("T")

_OPTIONS = {
    "description": "description",
    "subjects": "subjects",
    "discard": "discard",
    "max_age": "max-age",
    "max_bytes": "max-bytes",
    "duplicate_window": "dupe-window",
    "num_replicas": "replicas",
    "deny_delete": "deny-delete",
    "deny_purge": "deny-purge",
    "allow_direct": "allow-direct",
    "filter_subjects": "filter",
    "ack_wait": "wait",
    "max_ack_pending": "max-pending",
    "max_deliver": "max-deliver",
}
"""How the nats command line tool calls what it can change of a stream or a consumer."""
ADDED = ("description", "republish", "deny_purge")
"""Settings of which something may have been made without: they came later, and change nothing for who uses it."""
CORRECTED = ("compression",)
"""Settings that lose messages when they are other than specified: the setup corrects them, whoever set them."""
RESTART = "restart the servers one after another: a server heeds it from its next start on"
"""What is left to do once one of CORRECTED is corrected (nats-server 2.15.1)."""
LISTS = ("subjects", "filter_subjects")
"""Lists of subjects: what one lacks is added, and nothing else of it is changed."""
_SECONDS = frozenset({"max_age", "duplicate_window", "ack_wait"})


@dataclass(frozen=True, slots=True)
class StreamSpec:
    name: str
    settings: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"stream {self.name}"


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    stream: str
    name: str
    settings: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"consumer {self.name} of stream {self.stream}"


@dataclass(frozen=True, slots=True)
class BucketSpec:
    """A bucket of the object store (NATS ADR-20): a stream with a fixed name, fixed subjects and these settings."""

    name: str
    settings: Mapping[str, Any]

    def as_stream(self) -> StreamSpec:
        fixed = {
            "subjects": [f"$O.{self.name}.C.>", f"$O.{self.name}.M.>"],
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        return StreamSpec(f"OBJ_{self.name}", {**self.settings, **fixed})


@dataclass(frozen=True, slots=True)
class KeyValueSpec:
    """A bucket of keys and values (NATS ADR-8), of which it keeps the newest."""

    name: str
    settings: Mapping[str, Any]

    def as_stream(self) -> StreamSpec:
        fixed = {
            "subjects": [f"$KV.{self.name}.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        return StreamSpec(f"KV_{self.name}", {**self.settings, **fixed})


@dataclass(frozen=True, slots=True)
class Topology:
    streams: tuple[StreamSpec, ...] = ()
    consumers: tuple[ConsumerSpec, ...] = ()
    buckets: tuple[BucketSpec | KeyValueSpec, ...] = ()

    def all_streams(self) -> tuple[StreamSpec, ...]:
        return (*self.streams, *(bucket.as_stream() for bucket in self.buckets))


@dataclass(frozen=True, slots=True)
class Deviation:
    """`unset`: one of ADDED. `harmful`: one of CORRECTED. `lacks`: one of LISTS; `expected` is what is not there.
    `created`, `changed`, `remade`: done now."""

    kind: Literal["missing", "unset", "harmful", "lacks", "differs", "created", "changed", "remade"]
    what: str
    field: str = ""
    expected: str = ""
    actual: str = ""
    remedy: str = ""


async def check_topology(link: NatsLink, topology: Topology) -> list[Deviation]:
    """What is missing or differs. Changes nothing. Raises Misconfigured or TryAgain when the server cannot be asked."""
    return await _visit(link, topology, create=False)


async def create_missing(link: NatsLink, topology: Topology) -> list[Deviation]:
    """Returns what was created, and what differs and is left. Raises as `check_topology`, and TryAgain after an
    election's time."""
    return await _visit(link, topology, create=True)


async def found_stream(link: NatsLink, stream: StreamSpec) -> StreamInfo | None:
    return await _found(link, stream.what, link.jetstream.stream_info(stream.name))


async def change_settings(link: NatsLink, stream: StreamSpec, fields: Iterable[str]) -> list[Deviation]:
    """Give a stream that exists these settings of its specification, and leave all else."""
    config = (await asked(link, stream.what, link.jetstream.stream_info(stream.name))).config
    before = {name: getattr(config, name) for name in fields}
    after = {name: stream.settings[name] for name in before}
    changed = [name for name in before if _comparable(before[name]) != _comparable(after[name])]
    if changed:
        await asked(link, stream.what, link.jetstream.update_stream(config.evolve(**after)))
    return [Deviation("changed", stream.what, name, shown(after[name]), shown(before[name])) for name in changed]


async def _visit(link: NatsLink, topology: Topology, *, create: bool) -> list[Deviation]:
    findings: list[Deviation] = []
    visits = [
        *(partial(_visit_stream, link, stream, create=create) for stream in topology.all_streams()),
        *(partial(_visit_consumer, link, consumer, create=create) for consumer in topology.consumers),
    ]
    for visit in visits:
        findings += await (through_an_election(visit) if create else visit())
    return findings


async def through_an_election(visit: Callable[[], Awaitable[T]]) -> T:
    """Repeat while the servers elect a leader: it may be begun twice. Raises what it raises; TryAgain only after a
    while."""
    until = asyncio.get_running_loop().time() + BUDGET_SECONDS
    while True:
        try:
            return await visit()
        except NoRoom:
            raise
        except TryAgain as error:
            if asyncio.get_running_loop().time() >= until:
                raise
            await asyncio.sleep(error.delay_s / 2)


async def _visit_stream(link: NatsLink, spec: StreamSpec, *, create: bool) -> list[Deviation]:
    info: StreamInfo | None = await _found(link, spec.what, link.jetstream.stream_info(spec.name))
    if info is not None:
        return _differences(spec.what, spec.settings, info.config, f"nats stream edit {spec.name}")
    if not create:
        return [_missing(spec.what)]
    config = StreamConfig(name=spec.name, **spec.settings)
    await asked(link, spec.what, link.jetstream.add_stream(config))
    return [Deviation("created", spec.what)]


async def _visit_consumer(link: NatsLink, spec: ConsumerSpec, *, create: bool) -> list[Deviation]:
    looking = link.jetstream.consumer_info(spec.stream, spec.name)
    info: ConsumerInfo | None = await _found(link, spec.what, looking)
    if info is not None:
        return _differences(spec.what, spec.settings, info.config, f"nats consumer edit {spec.stream} {spec.name}")
    if not create:
        return [_missing(spec.what)]
    await asked(link, spec.what, _create_consumer(link, spec))
    return [Deviation("created", spec.what)]


async def _create_consumer(link: NatsLink, spec: ConsumerSpec) -> None:
    """With the action `create`, which fails where the client's add_consumer would silently change a consumer."""
    config = ConsumerConfig(name=spec.name, durable_name=spec.name, **spec.settings)
    request = {"stream_name": spec.stream, "config": config.as_dict(), "action": "create"}
    await unrefused(link, f"CONSUMER.CREATE.{spec.stream}.{spec.name}", request)


async def unrefused(link: NatsLink, question: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """As `ask_jetstream`, and raises APIError for a refusal."""
    answer = await link.ask_jetstream(question, request)
    if error := answer.get("error"):
        raise APIError(**error)
    return answer


async def _found(link: NatsLink, what: str, looking: Awaitable[T]) -> T | None:
    try:
        return await asked(link, what, looking)
    except NotFoundError:
        return None


NO_ROOM = frozenset({10002, 10023, 10028, 10047})
"""JetStream's errors where the server, or the account, has not the room that a stream is to have."""
NO_PEERS, WITHOUT_ROOM = 10005, "insufficient storage"
"""That of a cluster of whose servers too few can take a stream, and what it says where that is for want of room."""


async def asked(link: NatsLink, what: str, answer: Awaitable[T]) -> T:
    """JetStream's answer to a question about `what`. Raises NotFoundError, Misconfigured and TryAgain."""
    try:
        return await answer
    except NotFoundError:
        raise
    except ServiceUnavailableError as error:
        if error.err_code:  # it says so itself: a cluster elects a leader
            raise TryAgain(f"{what}: {error.description} (JetStream error {error.err_code})") from error
        raise Misconfigured(f"{what}: JetStream does not answer. Is it enabled on the server?") from error
    except APIError as error:
        raise _refused(what, error) from error
    except (nats.errors.Error, TryAgain) as error:  # a denied request is not answered at all
        if link.violation:
            raise Misconfigured(f"{what}: {link.violation}. Give this user the permission") from error
        raise TryAgain(f"{what}: {error}") from error


def _refused(what: str, error: APIError) -> Failure:
    text = f"{what}: {error.description} (JetStream error {error.err_code})"
    if error.err_code in NO_ROOM or (error.err_code == NO_PEERS and WITHOUT_ROOM in (error.description or "")):
        return NoRoom(text)
    if error.err_code == NO_PEERS:  # a busy one, or one that has just started, is taken for away by the others
        return TryAgain(f"{text}: the cluster has fewer servers than that has replicas, or some are away")
    return Misconfigured(f"{text}. Correct its settings or the server's")


def _missing(what: str) -> Deviation:
    return Deviation("missing", what, remedy="run the setup, which creates what is missing")


def _differences(what: str, settings: Mapping[str, Any], config: object, remedy: str) -> list[Deviation]:
    found = [(field, value, getattr(config, field)) for field, value in settings.items()]
    return [
        _difference(what, field, expected, actual, remedy)
        for field, expected, actual in found
        if _comparable(expected) != _comparable(actual)
    ]


def _difference(what: str, field: str, expected: object, actual: object, remedy: str) -> Deviation:
    if field in ADDED and not actual:
        return Deviation("unset", what, field, shown(expected), remedy="run the setup, which adds it")
    if field in CORRECTED:
        return Deviation("harmful", what, field, shown(expected), shown(actual), "run the setup, which corrects it")
    if field in LISTS and (more := lacking(expected, actual)):
        return Deviation("lacks", what, field, ", ".join(more), shown(actual), "run the setup, which adds it")
    told = f"either configure {field} likewise, or: {remedy}{_option(field, expected)}"
    return Deviation("differs", what, field, shown(expected), shown(actual), told)


def lacking(wanted: object, found: object) -> list[str]:
    """The subjects that `wanted` has and `found` does not take; none where `found` is no list, which takes all."""
    if not isinstance(wanted, list | tuple) or not isinstance(found, list | tuple):
        return []
    return [subject for subject in wanted if not any(matches(pattern, subject) for pattern in found)]


def _option(field: str, expected: object) -> str:
    if isinstance(expected, RePublish):
        source, destination = shlex.quote(expected.src or ""), shlex.quote(expected.dest or "")
        return f" --republish-source={source} --republish-destination={destination}"
    if field not in _OPTIONS:
        return ""
    if isinstance(expected, bool):
        return f" --{'' if expected else 'no-'}{_OPTIONS[field]}"
    values = expected if isinstance(expected, list | tuple) else [expected]
    unit = "s" if field in _SECONDS else ""
    return "".join(f" --{_OPTIONS[field]}={shlex.quote(f'{shown(value)}{unit}')}" for value in values)


def _comparable(value: object) -> object:
    """The server may order lists as it likes, and leaves out what is false or empty."""
    if isinstance(value, list | tuple):
        return sorted(map(str, value)) or None
    return value or None


def shown(value: object) -> str:
    if isinstance(value, RePublish):
        return f"{value.src} to {value.dest}"
    if value is None:
        return "as the server sets it"
    return str(getattr(value, "value", value))
