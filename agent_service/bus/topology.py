"""Streams, consumers and buckets on the NATS server, and their sizes.

Each kind of publisher has its own stream, so that none fills another's. AGENTIC_STARTS is a queue: taken messages leave
it, and a full one refuses (discard new). The others drop the oldest message (discard old), which was taken long ago or
is published again from journal or ledger. No deletes: deleting the newest message would lose the dedupe ids at a crash.
No purges. Requests, progress and acceptance do not sync: after a server crash the agent publishes again what is open.
Streams of a shared store are the truth: discard new, no age limit, purged by retention rules only.

The server reserves a stream's size when it creates the stream, and refuses beyond a limit that it does not report.
Servers of a cluster learn seconds late of each other's reservations, so one stream of the total size is tried first.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Self

from nats.js.api import RePublish

from groundwork.nats.lease import Role
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    Deviation,
    Spec,
    Topology,
    check_topology,
    info_of,
    key_value_bucket,
    object_bucket,
    set_up,
)
from groundwork.service.errors import Failure, Misconfigured, NoRoom
from schemas import subjects
from schemas.values import dataclass

DAY_S = 86400.0
GIB = 1024**3
ACK_WAIT_S = 5.0
"""Messages of a process that died are redelivered after this time."""
EXECUTOR_ACK_WAIT_S = 30.0
SHARERS = 8
"""Factor of `max_ack_pending` where several agents share the work."""
MAX_GIB = 10.0
LEAST_GIB = 0.01
OPERATORS_CHOICE = frozenset({"max_bytes", "max_age", "num_replicas", "description"})
CONSUMED = (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS, subjects.STREAM_REQUESTS)
OF_WORK = tuple(f"stream {name}" for name in (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS))
CHANGE = "run `agentic setup --change` once"
ADVISORIES = tuple(
    f"$JS.EVENT.ADVISORY.CONSUMER.{kind}.{stream}.>"
    for kind in ("MAX_DELIVERIES", "MSG_TERMINATED")
    for stream in CONSUMED
)
ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_AGENT, command="agentic serve")

Json = dict[str, Any]

log = logging.getLogger(__name__)


async def check(link: NatsLink, *, shared: bool = False) -> None:
    """Raises Misconfigured if something is missing or would refuse messages; logs other differences."""
    findings = await check_topology(link, await expected(link, shared=shared))
    if missing := ", ".join(f.what for f in findings if f.kind == "missing"):
        mend = "run `agentic setup --shared` once" if shared else "run `agentic setup` once"
        raise Misconfigured(f"NATS has no {missing}: {mend}, then start again")
    if deaf := lacking_work(findings):
        raise Misconfigured(f"{deaf.what} of NATS lacks {deaf.expected}: {CHANGE}, then start again")
    for finding in (f for f in findings if f.field not in OPERATORS_CHOICE):
        log.warning("NATS differs", extra={"what": finding.what, "field": finding.field, "remedy": CHANGE})


def lacking_work(findings: Iterable[Deviation]) -> Deviation | None:
    return next((f for f in findings if f.field == "subjects" and f.what in OF_WORK), None)


async def expected(link: NatsLink, *, shared: bool) -> Topology:
    """The topology with the replicas found, because other settings depend on their number."""
    _, replicas, _ = await size_found(link)
    return topology(replicas=replicas, shared=shared)


async def size_found(link: NatsLink) -> tuple[bool, int, float]:
    """(AGENTIC exists, its replicas, GiB of the topology), by default 1 and MAX_GIB. Raises Misconfigured, TryAgain."""
    found = await info_of(link, Spec(subjects.STREAM, {}))
    if found is None:
        return False, 1, MAX_GIB
    config, most = found["config"], found["config"].get("max_bytes", 0)
    gib = max(2 * most / GIB, LEAST_GIB) if most > 0 else MAX_GIB  # without a limit
    return True, config.get("num_replicas") or 1, gib


@dataclass(frozen=True, slots=True)
class Executor:
    """`name` is that of its login and of its consumer on `subjects`."""

    name: str
    subjects: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Parses `NAME=ROUTE[,ROUTE]`. Raises ValueError for an illegal or reserved name or route."""
        name, _, routes = text.partition("=")
        if not subjects.NAME.fullmatch(name) or not routes:
            raise ValueError(f"{text!r} is not NAME=ROUTE[,ROUTE], where each is {subjects.NAME_FORM}")
        asked = tuple(map(subjects.tool_request, routes.split(",")))
        if name in (subjects.DURABLE_TOOLS, subjects.DURABLE_CHILDREN) or subjects.REQUESTS_FOR_CHILDREN in asked:
            raise ValueError(f"{text}: agent or gateway has a consumer of that name, or a tool of that route")
        return cls(name, asked)


def topology(
    *, replicas: int = 1, max_gib: float = MAX_GIB, executors: Iterable[Executor] = (), shared: bool = False
) -> Topology:
    """`replicas` is 1, 3 or 5; `max_gib` bounds work, artifacts and shared runs, each. See `reserved_gib`."""
    stores = _stores(replicas, max_gib) if shared else ()
    consumers = (_consumer(*row, shared=shared) for row in _CONSUMERS if shared or row[0] in subjects.CONSUMERS)
    streams = (*_streams(replicas, max_gib), *stores, *_buckets(replicas, max_gib))
    return (*streams, *consumers, *map(_of_executor, executors))


def reserved_gib(of: Topology) -> float:
    return float(sum(one.settings["max_bytes"] for one in of if not one.consumer)) / GIB


def _streams(replicas: int, gib: float) -> Iterator[Spec]:
    """`gib` bounds all streams of work together."""
    durable = {"deny_delete": True, "deny_purge": True, "allow_direct": True}
    passing = {"persist_mode": "async" if replicas == 1 else None}
    again = "Can be published again from the journal."
    table: dict[str, tuple[str, float, Json]] = {
        subjects.STREAM: ("cancels, signals, endings. Durable.", gib / 2, durable),
        subjects.STREAM_STARTS: (
            "goals that no agent has taken up yet. Durable.",
            gib / 8,
            durable | {"retention": "workqueue", "discard": "new"},
        ),
        subjects.STREAM_RESULTS: ("results of tools. Durable.", gib * 3 / 8, durable),
        subjects.STREAM_REQUESTS: (f"tool requests. {again}", min(1.0, gib / 4), passing | {"allow_direct": True}),
        subjects.STREAM_PROGRESS: (
            f"progress and accepted wakes. {again}",
            min(0.25, gib / 8),
            passing | {"max_age": DAY_S, "duplicate_window": 120.0},
        ),
        subjects.STREAM_DEAD_LETTERS: (
            "messages that could not be handled, with the reason in their headers.",
            min(1.0, gib / 4),
            {"max_age": 30 * DAY_S, "republish": _to_the_log(subjects.REJECTED)},
        ),
    }
    for name, (about, size, own) in table.items():
        more = ADVISORIES if name == subjects.STREAM_DEAD_LETTERS else ()
        usual = {"discard": "old", "max_age": 14 * DAY_S, "duplicate_window": DAY_S, "republish": _to_the_log(">")}
        taken = [*subjects.STREAMS[name], *more]
        yield _stream(name, about, replicas, size, {"subjects": taken, "retention": "limits", **usual, **own})


def _to_the_log(filtered: str) -> RePublish:
    """Republishes stored messages for observers; the subject itself also has refused messages and duplicates."""
    return RePublish(src=filtered, dest=f"{subjects.LOG}.{filtered}")


def _stores(replicas: int, gib: float) -> Iterator[Spec]:
    """Stores that agents and gateways share. In the ledger, a rollup replaces older facts of its subject."""
    note = "shared by several. Durable; back it up."
    own = {"discard": "new", "duplicate_window": 120.0, "deny_delete": True, "allow_direct": True}
    runs = {"subjects": [f"{subjects.STORE}.>"]}
    ledger = {"subjects": [f"{subjects.LEDGER}.>"], "allow_rollup_hdrs": True}
    yield _stream(subjects.STREAM_RUNS, f"the journals of all runs, {note}", replicas, gib, own | runs)
    yield _stream(subjects.STREAM_LEDGER, f"what gateways know of calls, {note}", replicas, gib / 2, own | ledger)
    queue = own | {"subjects": [subjects.TURN], "retention": "workqueue", "duplicate_window": 30.0}
    yield _stream(subjects.STREAM_TURNS, "turns of runs that no other message drives.", replicas, gib / 8, queue)


def _buckets(replicas: int, gib: float) -> tuple[Spec, ...]:
    artifacts = _stream("", "what tools brought that is too large for a message.", replicas, gib, {}).settings
    leases = _stream("", "which agent and which gateway have this bus.", replicas, 1 / 1024, {}).settings
    return object_bucket(subjects.ARTIFACT_BUCKET, artifacts), key_value_bucket(subjects.LEASE_BUCKET, leases)


def _stream(name: str, about: str, replicas: int, gib: float, own: Json) -> Spec:
    """Uncompressed: a server that is killed may damage its copy of a compressed stream (nats-server 2.15.1), and two
    such copies lose it."""
    common = {"description": f"Agentic Loop: {about}", "storage": "file", "compression": "none"}
    return Spec(name, {**common, "num_replicas": replicas, "max_bytes": int(gib * GIB), **own})


_CONSUMERS = (
    (subjects.DURABLE_STARTS, "The agent takes starts: a run each.", 256, "all"),
    (subjects.DURABLE_LOOP, "The agent takes results: a turn each.", 256, "all"),
    (subjects.DURABLE_CONTROL, "The agent takes cancels and signals, past all turns.", 64, "all"),
    (subjects.DURABLE_CHILDREN, "The agent takes requests for other agents: a run each.", 64, "all"),
    (subjects.DURABLE_TOOLS, "The gateway takes tool requests, and holds each until it has answered.", 256, "all"),
    (subjects.DURABLE_LIFECYCLE, "The gateway tells endings, and waits for people, to callbacks.", 256, "new"),
    (subjects.DURABLE_PROGRESS, "The gateway tells progress to callers that asked for it.", 256, "new"),
    (subjects.DURABLE_TURNS, "Agents that share a store take turns of runs.", 64, "all"),
)


def _consumer(name: str, description: str, most: int, deliver: str, *, shared: bool) -> Spec:
    stream, filters = (subjects.CONSUMERS | subjects.SHARED_CONSUMERS)[name]
    own = {"max_ack_pending": most * SHARERS if shared else most, "deliver_policy": deliver}
    return _consuming(stream, name, description, filters, own)


def _of_executor(executor: Executor) -> Spec:
    """Push consumers: a pulling one chooses its reply subject. One at a time, because ack_wait begins at the push."""
    pushed = {"deliver_subject": subjects.requests_of(executor.name), "deliver_group": executor.name}
    own = pushed | {"max_ack_pending": 1, "max_deliver": 10, "ack_wait": EXECUTOR_ACK_WAIT_S}
    return _consuming(subjects.STREAM_REQUESTS, executor.name, "An executor's requests.", executor.subjects, own)


def _consuming(stream: str, name: str, description: str, filters: tuple[str, ...], own: Json) -> Spec:
    """No redelivery backoff: it would replace ack_wait, and handlers ask for their own delay."""
    usual = {"ack_policy": "explicit", "ack_wait": ACK_WAIT_S, "max_deliver": -1, "deliver_policy": "all"}
    about = {"description": description, "filter_subjects": list(filters)}
    return Spec(stream, about | usual | own, consumer=name)


STEP = 0.5


async def set_up_within(
    link: NatsLink, gib: float, wanted: Callable[[float], Topology]
) -> tuple[list[Deviation], float]:
    """Sets up with `gib`, or half of that until it fits. Returns the deviations and the size. Raises as `set_up`."""
    while True:
        try:
            await _check_room(link, wanted(gib))
            return await set_up(link, wanted(gib)), gib
        except NoRoom:
            if gib * STEP < LEAST_GIB:
                raise
            gib *= STEP


async def _check_room(link: NatsLink, wanted: Topology) -> None:
    """Creates and deletes one stream of the total size. Raises NoRoom."""
    tried = next(one for one in wanted if one.stream == subjects.STREAM_PROGRESS)
    if await info_of(link, tried) is None:
        whole = tried.config() | {"max_bytes": int(reserved_gib(wanted) * GIB)}
        try:
            await link.ask_jetstream(tried.api("CREATE"), whole)
        except NoRoom:
            raise
        except BaseException:  # the answer may be lost
            with suppress(Failure):
                await link.ask_jetstream(tried.api("DELETE"))
            raise
        await link.ask_jetstream(tried.api("DELETE"))
