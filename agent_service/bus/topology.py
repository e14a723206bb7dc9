"""What the program needs on a NATS server (streams, consumers, buckets), and how large streams are made.

The server reserves a stream's room when it is made, and shows its own limit only by refusing; then what was made so far
is made smaller and the rest is tried again. Servers of a cluster learn seconds late how much of each other's room is
taken, so one stream as large as all of them is tried there first.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from nats.js.api import StreamConfig

from agent_service.bus.streams import GIB, UNCOMPRESSED, shared_streams, streams
from groundwork.nats.completing import set_up
from groundwork.nats.leases.lease import Role
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    BucketSpec,
    ConsumerSpec,
    Deviation,
    KeyValueSpec,
    StreamSpec,
    Topology,
    asked,
    change_settings,
    check_topology,
    found_stream,
)
from groundwork.service.errors import Failure, Misconfigured, NoRoom
from schemas import subjects

ACK_WAIT_S = 30.0
SHARED_ACK_WAIT_S = 5.0
"""Where several share the work: what a process had in hand that died is handed to another after that."""
SHARERS = 8
"""How many times as many messages may be in hand where several share the work."""
MAX_GIB = 10.0
LEAST_GIB = 0.01
OPERATORS_CHOICE = frozenset({"max_bytes", "max_age", "num_replicas", "description"})
OF_WORK = tuple(f"stream {name}" for name in (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS))
ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_AGENT, command="agentic serve")

log = logging.getLogger(__name__)


async def check(link: NatsLink, *, shared: bool = False) -> None:
    """Raises Misconfigured where something is missing or refuses what is published; warns of other differences."""
    findings = await check_topology(link, await expected(link, shared=shared))
    missing = ", ".join(f.what for f in findings if f.kind == "missing")
    if missing:
        mend = "run `agentic setup --shared` once" if shared else "run `agentic setup` once"
        raise Misconfigured(f"NATS has no {missing}: {mend}, then start again")
    if deaf := lacking_work(findings):
        what = f"{deaf.what} of NATS does not take {deaf.expected}"
        raise Misconfigured(f"{what}. Run `agentic setup` once, then start again")
    for finding in (f for f in findings if f.field not in OPERATORS_CHOICE):
        log.warning("NATS differs", extra={"what": finding.what, "field": finding.field, "remedy": finding.remedy})


async def expected(link: NatsLink, *, shared: bool) -> Topology:
    """The topology with as many replicas as there are: they differ in more than their number."""
    _, replicas, _ = await size_found(link)
    return topology(replicas=replicas, shared=shared)


async def size_found(link: NatsLink) -> tuple[bool, int, float]:
    """Whether AGENTIC exists, its replicas and GiB (else 1 and MAX_GIB). Raises Misconfigured and TryAgain."""
    found = await found_stream(link, StreamSpec(subjects.STREAM, {}))
    if found is None:
        return False, 1, MAX_GIB
    return True, found.config.num_replicas or 1, max(2 * (found.config.max_bytes or 0) / GIB, LEAST_GIB)


def lacking_work(findings: Iterable[Deviation]) -> Deviation | None:
    return next((f for f in findings if f.kind == "lacks" and f.what in OF_WORK), None)


@dataclass(frozen=True, slots=True)
class Executor:
    """`name` is that of its login and its consumer, which hands it what is said on `subjects`."""

    name: str
    subjects: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Of `NAME=ROUTE[,ROUTE]`. Raises ValueError for what is no name, and for a name or route of our own."""
        name, _, routes = text.partition("=")
        if not subjects.NAME.fullmatch(name):
            raise ValueError(f"an executor is named by {subjects.NAME.pattern}, as NAME=ROUTE")
        asked = tuple(map(subjects.tool_request, routes.split(",")))
        if name in (subjects.DURABLE_TOOLS, subjects.DURABLE_CHILDREN) or subjects.REQUESTS_FOR_CHILDREN in asked:
            raise ValueError(
                f"{text}: that name is a consumer, or that route a tool, of agent or gateway; take another"
            )
        return cls(name, asked)


def topology(
    *, replicas: int = 1, max_gib: float = MAX_GIB, executors: Iterable[Executor] = (), shared: bool = False
) -> Topology:
    """`replicas` is 1, 3 or 5; `max_gib` bounds work, artifacts and shared runs, each. See `reserved_gib`."""
    kept = shared_streams(replicas, max_gib) if shared else ()
    return Topology(
        streams=(*streams(replicas, max_gib), *kept),
        consumers=(*(_as_shared(spec) if shared else spec for spec in _consumers()), *map(_executors, executors)),
        buckets=_buckets(replicas, max_gib),
    )


def _consumers() -> tuple[ConsumerSpec, ...]:
    return (
        _consumer(
            subjects.STREAM_STARTS,
            subjects.DURABLE_STARTS,
            "The agent takes starts: a run each.",
            [subjects.START],
            256,
        ),
        _consumer(
            subjects.STREAM_RESULTS,
            subjects.DURABLE_LOOP,
            "The agent takes results: a turn each.",
            [subjects.TOOL_RESULT],
            256,
        ),
        _consumer(
            subjects.STREAM,
            subjects.DURABLE_CONTROL,
            "The agent takes cancels and signals, past all turns.",
            [subjects.CANCEL, subjects.SIGNAL],
            64,
        ),
        _consumer(
            subjects.STREAM_REQUESTS,
            subjects.DURABLE_CHILDREN,
            "The agent takes requests for other agents: a run each.",
            [subjects.REQUESTS_FOR_CHILDREN],
            64,
        ),
        _consumer(
            subjects.STREAM_REQUESTS,
            subjects.DURABLE_TOOLS,
            "The gateway takes tool requests, and holds each until it has answered.",
            [subjects.ALL_TOOL_REQUESTS],
            256,
        ),
        _notices(
            subjects.STREAM,
            subjects.DURABLE_LIFECYCLE,
            "The gateway tells endings, and what waits for a person, to callbacks and to Ductile.",
            list(subjects.LIFECYCLE),
        ),
        _notices(
            subjects.STREAM_PROGRESS,
            subjects.DURABLE_PROGRESS,
            "The gateway tells progress to whoever asked for it.",
            [subjects.PROGRESS],
        ),
    )


def _as_shared(spec: ConsumerSpec) -> ConsumerSpec:
    more = {"ack_wait": SHARED_ACK_WAIT_S, "max_ack_pending": spec.settings["max_ack_pending"] * SHARERS}
    return ConsumerSpec(spec.stream, spec.name, {**spec.settings, **more})


def _buckets(replicas: int, max_gib: float) -> tuple[BucketSpec | KeyValueSpec, ...]:
    return (
        BucketSpec(
            subjects.ARTIFACT_BUCKET,
            {
                "description": "Agentic Loop: what tools brought that is too large for a message.",
                **UNCOMPRESSED,
                "storage": "file",
                "num_replicas": replicas,
                "max_bytes": int(max_gib * GIB),
            },
        ),
        KeyValueSpec(
            subjects.LEASE_BUCKET,
            {
                "description": "Agentic Loop: which agent and which gateway have this bus.",
                **UNCOMPRESSED,
                "storage": "file",
                "num_replicas": replicas,
                "max_bytes": GIB // 1024,
            },
        ),
    )


def reserved_gib(max_gib: float, *, shared: bool = False) -> float:
    needed = topology(max_gib=max_gib, shared=shared).all_streams()
    return float(sum(stream.settings["max_bytes"] for stream in needed)) / GIB


def _consumer(stream: str, name: str, description: str, filters: list[str], max_ack_pending: int) -> ConsumerSpec:
    """Redelivery has no backoff: it would replace ack_wait, and a handler asks for its own delay."""
    return ConsumerSpec(
        stream,
        name,
        {
            "description": description,
            "filter_subjects": filters,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S,
            "max_ack_pending": max_ack_pending,
            "max_deliver": -1,
            "deliver_policy": "all",
        },
    )


def _executors(executor: Executor) -> ConsumerSpec:
    """Push consumers: a pulling one chooses its reply subject. One at a time, because ack_wait begins at the push."""
    about = "An executor is given its requests."
    spec = _consumer(subjects.STREAM_REQUESTS, executor.name, about, list(executor.subjects), 1)
    pushed = {"deliver_subject": subjects.requests_of(executor.name), "deliver_group": executor.name}
    return ConsumerSpec(spec.stream, spec.name, {**spec.settings, **pushed, "max_deliver": 10})


def _notices(stream: str, name: str, description: str, filters: list[str]) -> ConsumerSpec:
    spec = _consumer(stream, name, description, filters, 256)
    return ConsumerSpec(stream, name, {**spec.settings, "deliver_policy": "new"})


STEP = 0.5
LEFT_TO_OTHERS = 0.2


async def offered_gib(link: NatsLink, reserved: Callable[[float], float], replicas: int) -> float:
    """The largest usual size that the account has room for, or MAX_GIB. `reserved`: GiB that a size sets aside."""
    try:
        account = json.loads(await link.request("$JS.API.INFO", b""))
    except (Failure, ValueError):
        return MAX_GIB
    tier = account.get("tiers", {}).get(f"R{replicas}")
    granted = tier or account
    most = granted.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        return MAX_GIB
    taken = max(granted.get("storage", 0), granted.get("reserved_storage", 0))
    room = (most - taken) * (1 - LEFT_TO_OTHERS) / (1 if tier else replicas) / GIB
    return next((gib for gib in sizes() if reserved(gib) <= room), LEAST_GIB)


def sizes() -> Iterator[float]:
    gib = MAX_GIB
    while gib >= LEAST_GIB:
        yield gib
        gib *= STEP


async def set_up_within(
    link: NatsLink, gib: float, wanted: Callable[[float], Topology]
) -> tuple[list[Deviation], float]:
    """Make all of it with `gib` or the next smaller size that fits; the findings and that size. Raises as `set_up`."""
    gib = await _fits_in_one(link, gib, wanted)
    missing = {one.what for one in await check_topology(link, wanted(gib)) if one.kind == "missing"}
    while True:
        try:
            done = await set_up(link, wanted(gib))
        except NoRoom:
            if gib * STEP < LEAST_GIB:
                raise
            gib *= STEP
            await _made_smaller(link, wanted(gib), missing)
        else:
            told = {one.what for one in done if one.kind == "created"}
            before = [Deviation("created", what) for what in sorted(missing - told)]
            return [*before, *done], gib


async def _fits_in_one(link: NatsLink, gib: float, wanted: Callable[[float], Topology]) -> float:
    while gib * STEP >= LEAST_GIB:
        streams = wanted(gib).all_streams()
        tried = next(stream for stream in streams if stream.name == subjects.STREAM_PROGRESS)
        if tried.settings["num_replicas"] == 1 or await found_stream(link, tried):
            return gib
        whole = dict(tried.settings) | {"max_bytes": sum(stream.settings["max_bytes"] for stream in streams)}
        try:
            await asked(link, tried.what, link.jetstream.add_stream(StreamConfig(name=tried.name, **whole)))
        except NoRoom:
            gib *= STEP
        else:
            await asked(link, tried.what, link.jetstream.delete_stream(tried.name))
            return gib
    return gib


async def _made_smaller(link: NatsLink, wanted: Topology, ours: Collection[str]) -> None:
    for stream in wanted.all_streams():
        found = await found_stream(link, stream) if stream.what in ours else None
        if found is None:
            continue
        try:
            await change_settings(link, stream, ["max_bytes"])
        except NoRoom:
            if found.state.messages:
                raise
            await asked(link, stream.what, link.jetstream.delete_stream(stream.name))
