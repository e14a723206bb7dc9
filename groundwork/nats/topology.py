"""Streams and consumers as they should be, their difference from what exists, and how that is mended.

Only the settings that a specification names are compared. They have the names and units (seconds, bytes) of
nats.js.api's StreamConfig and ConsumerConfig; enumerations are given as their strings. A server cannot change the
`persist_mode` of a stream: such a stream is made anew, with its consumers and without its messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import nats.errors
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from groundwork.nats.link import BUDGET_SECONDS, NatsLink
from groundwork.nats.publishing import matches
from groundwork.service.errors import Failure, Misconfigured, NoRoom, TryAgain

T = TypeVar("T")
Json = dict[str, Any]

ADDED = ("description", "republish", "deny_purge")
"""Settings that change nothing for users of a stream or consumer: the setup adds them where they are not set."""
COMPRESSION = "compression"
"""A stream that is compressed may lose messages (nats-server 2.15.1): the setup takes it off."""
RESTART = "restart the servers one after another: a server heeds it from its next start on"
"""What is left to do once the compression is taken off."""
LISTS = ("subjects", "filter_subjects")
"""The setup adds the subjects that these lack, and takes none away."""
MODE = "persist_mode"
_TIMES = frozenset({"max_age", "duplicate_window", "ack_wait"})


@dataclass(frozen=True, slots=True)
class StreamSpec:
    name: str
    settings: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"stream {self.name}"

    def api(self, verb: str) -> str:
        return f"STREAM.{verb}.{self.name}"

    def config(self) -> Json:
        return StreamConfig(name=self.name, **self.settings).as_dict()

    def making(self, config: Json, *, update: bool) -> tuple[str, Json]:
        return self.api("UPDATE" if update else "CREATE"), config


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    stream: str
    name: str
    settings: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"consumer {self.name} of stream {self.stream}"

    def api(self, verb: str) -> str:
        return f"CONSUMER.{verb}.{self.stream}.{self.name}"

    def config(self) -> Json:
        return ConsumerConfig(name=self.name, durable_name=self.name, **self.settings).as_dict()

    def making(self, config: Json, *, update: bool) -> tuple[str, Json]:
        """With an action, without which the server would silently change a consumer that is there."""
        action = "update" if update else "create"
        return self.api("CREATE"), {"stream_name": self.stream, "config": config, "action": action}


Spec = StreamSpec | ConsumerSpec


def object_bucket(name: str, settings: Mapping[str, Any]) -> StreamSpec:
    """A bucket of the object store (NATS ADR-20): a stream with a fixed name, fixed subjects and these settings."""
    return _bucket(f"OBJ_{name}", settings, subjects=[f"$O.{name}.C.>", f"$O.{name}.M.>"])


def key_value_bucket(name: str, settings: Mapping[str, Any]) -> StreamSpec:
    """A bucket of keys, each with its newest value (NATS ADR-8)."""
    return _bucket(f"KV_{name}", settings, subjects=[f"$KV.{name}.>"], max_msgs_per_subject=1, deny_delete=True)


def _bucket(name: str, settings: Mapping[str, Any], **fixed: Any) -> StreamSpec:
    common = {"discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}
    return StreamSpec(name, {**settings, **common, **fixed})


@dataclass(frozen=True, slots=True)
class Topology:
    streams: tuple[StreamSpec, ...] = ()
    consumers: tuple[ConsumerSpec, ...] = ()

    @property
    def specs(self) -> tuple[Spec, ...]:
        return (*self.streams, *self.consumers)


@dataclass(frozen=True, slots=True)
class Deviation:
    """`created`, `changed`, `remade`: done now. `harmless`: mending it takes nothing away, so the setup does. `lacks`:
    `expected` is what a list of subjects has not."""

    kind: Literal["missing", "differs", "created", "changed", "remade"]
    what: str
    field: str = ""
    expected: str = ""
    actual: str = ""
    lacks: bool = False
    harmless: bool = False


def harmless(finding: Deviation) -> bool:
    return finding.harmless


async def check_topology(link: NatsLink, topology: Topology) -> list[Deviation]:
    """What is missing or differs. Changes nothing. Raises Misconfigured or TryAgain when the server cannot be asked."""
    found = [(spec, await info_of(link, spec)) for spec in topology.specs]
    return [one for spec, info in found for one in _differences(spec, info)]


async def set_up(
    link: NatsLink, topology: Topology, *, changes: Callable[[Deviation], bool] = harmless
) -> list[Deviation]:
    """Create what is missing and change the differences that `changes` takes. Returns what was done, and the
    differences that are left. Raises as `check_topology`, TryAgain after an election's time, and NoRoom."""
    done: list[Deviation] = []
    for spec in topology.specs:
        done += await through_an_election(lambda spec=spec: _set_up(link, spec, changes))  # type: ignore[misc] # bound now
    return done


async def info_of(link: NatsLink, spec: Spec) -> Json | None:
    """The server's description of it; None where it is missing. Raises as `asked`."""
    try:
        return await asked(link, spec.what, unrefused(link, spec.api("INFO")))
    except NotFoundError:
        return None


async def _set_up(link: NatsLink, spec: Spec, changes: Callable[[Deviation], bool]) -> list[Deviation]:
    info = await info_of(link, spec)
    if info is None:
        await _make(link, spec, spec.config())
        return [Deviation("created", spec.what)]
    found = _differences(spec, info)
    differing = [one for one in found if changes(one)]
    if isinstance(spec, StreamSpec) and any(one.field == MODE for one in differing):
        return [await _remake(link, spec)]
    config: Json = info["config"]
    fields = _fields(spec.config(), config, differing)
    if differing:
        await _make(link, spec, config | fields, update=True)
    changed = [Deviation("changed", one.what, one.field, _shown(one.field, fields), one.actual) for one in differing]
    return [*changed, *(one for one in found if one not in differing)]


def _fields(wanted: Json, config: Json, differing: list[Deviation]) -> Json:
    return {
        one.field: [*config[one.field], *_lacking(wanted[one.field], config[one.field])]
        if one.lacks
        else wanted.get(one.field)
        for one in differing
    }


async def _make(link: NatsLink, spec: Spec, config: Json, *, update: bool = False) -> None:
    await asked(link, spec.what, unrefused(link, *spec.making(config, update=update)))


async def _remake(link: NatsLink, spec: StreamSpec) -> Deviation:
    """A setup that ends in between leaves what is missing to the next, but for consumers that it does not know."""
    consumers = await asked(link, spec.what, link.jetstream.consumers_info(spec.name))
    await asked(link, spec.what, link.jetstream.delete_stream(spec.name))
    await _make(link, spec, spec.config())
    for consumer in consumers:
        await _make(link, ConsumerSpec(spec.name, consumer.name, {}), consumer.config.as_dict())
    return Deviation("remade", spec.what, expected=", ".join(consumer.name for consumer in consumers))


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


async def unrefused(link: NatsLink, question: str, request: Mapping[str, Any] | None = None) -> Json:
    """As `ask_jetstream`, and raises APIError for a refusal."""
    answer = await link.ask_jetstream(question, request)
    if error := answer.get("error"):
        APIError.from_error(error)
    return answer


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


def _differences(spec: Spec, info: Json | None) -> list[Deviation]:
    if info is None:
        return [Deviation("missing", spec.what)]
    wanted, config = spec.config(), info["config"]
    differing = [name for name in spec.settings if _comparable(wanted.get(name)) != _comparable(config.get(name))]
    return [_difference(spec.what, name, wanted, config) for name in differing]


def _difference(what: str, name: str, wanted: Json, config: Json) -> Deviation:
    more = _lacking(wanted.get(name), config.get(name)) if name in LISTS else []
    mended = bool(more) or name == COMPRESSION or (name in ADDED and not config.get(name))
    expected, actual = ", ".join(more) or _shown(name, wanted), _shown(name, config) if config.get(name) else ""
    return Deviation("differs", what, name, expected, actual, lacks=bool(more), harmless=mended)


def _lacking(wanted: object, found: object) -> list[str]:
    """The subjects that `wanted` has and `found` does not take; none where `found` is no list, which takes all."""
    if not isinstance(wanted, list | tuple) or not isinstance(found, list | tuple):
        return []
    return [subject for subject in wanted if not any(matches(pattern, subject) for pattern in found)]


_DEFAULTS = ("none", "default")
"""How the server spells a setting that was left out."""


def _comparable(value: object) -> object:
    """The server may order lists as it likes, and leaves out what is false or empty."""
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
