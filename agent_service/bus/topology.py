"""The streams, consumers and buckets that the program needs on a NATS server.

`AGENTIC` keeps what comes from others, and endings: limits retention (every consumer and viewer sees everything),
discard new (the bus pushes back instead of losing work), no deletes (deleting the newest message would lose the dedupe
ids at a crash). Tool requests, progress and acceptance have streams without a sync of their own, because the journal
can say them again: a server that is killed loses the newest of them, and the agent says again what is outstanding as
soon as it is back.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from nats.js.api import RePublish

from groundwork.nats.completing import complete
from groundwork.nats.lease_record import Role
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import (
    BucketSpec,
    ConsumerSpec,
    Deviation,
    KeyValueSpec,
    StreamSpec,
    Topology,
    change_subjects,
    check_topology,
    create_missing,
    delete_consumer,
    subjects_of,
)
from groundwork.service.errors import Misconfigured
from schemas import subjects

DAY_S = 86400.0
GIB = 1024**3
ACK_WAIT_S = 30.0
CONSUMED = (subjects.STREAM, subjects.STREAM_REQUESTS)
LIFECYCLE = (
    subjects.COMPLETED,
    subjects.ESCALATED,
    subjects.FAILED,
    subjects.CANCELLED,
    subjects.WAITING,
    subjects.REOPENED,
)


MAX_GIB = 10.0
OPERATORS_CHOICE = frozenset({"max_bytes", "max_age", "num_replicas", "description"})
"""What a stream may have otherwise than we would create it."""
TO_THE_LOG = RePublish(src=">", dest=f"{subjects.LOG}.>")
"""What a stream has stored is said once more for onlookers: on the subject itself they hear also what it refused, or
dropped as a repetition."""
ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_AGENT, command="agentic serve")

log = logging.getLogger(__name__)


async def check(link: NatsLink) -> None:
    """Raises Misconfigured for a bus on which something is missing, or a stream that does not take what is said there,
    and warns of what is otherwise than we make it."""
    findings = await check_topology(link, topology())
    missing = ", ".join(f.what for f in findings if f.kind == "missing")
    if missing:
        raise Misconfigured(f"NATS has no {missing}: run `agentic setup` once, then start again")
    if deaf := lacking_work(findings):
        what = f"{deaf.what} of NATS does not take {deaf.expected}: it was made by an earlier version"
        raise Misconfigured(f"{what}. Run `agentic setup` once, then start again")
    for finding in (f for f in findings if f.field not in OPERATORS_CHOICE):
        log.warning("NATS differs", extra={"what": finding.what, "field": finding.field, "remedy": finding.remedy})


def lacking_work(findings: Iterable[Deviation]) -> Deviation | None:
    """The stream of work, if it does not take all that is said there: then nobody would be told."""
    work = f"stream {subjects.STREAM}"
    return next((f for f in findings if f.kind == "lacks" and f.what == work), None)


@dataclass(frozen=True, slots=True)
class Executor:
    """One whose login may make no consumer: `name` is that of its consumer, which takes what is said on `subjects`."""

    name: str
    subjects: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Of `NAME=ROUTE[,ROUTE]`. Raises ValueError for what is no name."""
        name, _, routes = text.partition("=")
        if not subjects.NAME.fullmatch(name):
            raise ValueError(f"an executor is named by {subjects.NAME.pattern}, as NAME=ROUTE")
        return cls(name, tuple(map(subjects.tool_request, routes.split(","))))


def topology(*, replicas: int = 1, max_gib: float = MAX_GIB, executors: Iterable[Executor] = ()) -> Topology:
    """What should exist. `replicas` is 1 or 3; `max_gib` bounds the stream of work on disk, and so the artifacts.

    The server sets all of it aside at once: see `reserved_gib`.
    """
    return Topology(
        streams=(
            _work(replicas, max_gib),
            _requests(replicas, max_gib),
            _progress(replicas, max_gib),
            _dead_letters(replicas, max_gib),
        ),
        consumers=(
            _consumer(
                subjects.STREAM,
                subjects.DURABLE_LOOP,
                "The agent takes starts and results: a turn each.",
                [subjects.START, subjects.TOOL_RESULT],
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
                subjects.DURABLE_TOOLS,
                "The gateway takes tool requests, and holds each until it has answered.",
                [subjects.ALL_TOOL_REQUESTS],
                256,
            ),
            _notices(
                subjects.STREAM,
                subjects.DURABLE_LIFECYCLE,
                "The gateway tells endings, and what waits for a person, to callbacks and to Ductile.",
                list(LIFECYCLE),
            ),
            _notices(
                subjects.STREAM_PROGRESS,
                subjects.DURABLE_PROGRESS,
                "The gateway tells progress to whoever asked for it.",
                [subjects.PROGRESS],
            ),
            *map(_executors, executors),
        ),
        buckets=(
            BucketSpec(
                subjects.ARTIFACT_BUCKET,
                {
                    "description": "Agentic Loop: what tools brought that is too large for a message.",
                    "storage": "file",
                    "num_replicas": replicas,
                    "max_bytes": int(max_gib * GIB),
                },
            ),
            KeyValueSpec(
                subjects.LEASE_BUCKET,
                {
                    "description": "Agentic Loop: which agent and which gateway have this bus.",
                    "storage": "file",
                    "num_replicas": replicas,
                    "max_bytes": GIB // 1024,
                },
            ),
        ),
    )


async def set_up(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Create what is missing, move what earlier versions kept elsewhere, and add what they did not set. The findings
    tell all that was done, and what differs, which is left as it is. Raises as `create_missing`."""
    moved = await _requests_moved(link, wanted)
    return [*moved, *await complete(link, wanted), *await create_missing(link, wanted)]


async def _requests_moved(link: NatsLink, wanted: Topology) -> list[Deviation]:
    """Out of `AGENTIC`, where they once were. Those that nobody has answered are said again by the agent that asks."""
    streams = {stream.name: stream for stream in wanted.streams}
    work, letters = streams[subjects.STREAM], streams[subjects.STREAM_DEAD_LETTERS]
    if subjects.ALL_TOOL_REQUESTS not in await subjects_of(link, work):
        return []
    await delete_consumer(link, subjects.STREAM, subjects.DURABLE_TOOLS)
    return [await change_subjects(link, stream) for stream in (work, letters)]


def reserved_gib(max_gib: float) -> float:
    """What the server has to have room for, in each of its replicas."""
    streams = topology(max_gib=max_gib).all_streams()
    return float(sum(stream.settings["max_bytes"] for stream in streams)) / GIB


def _work(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM,
        {
            "description": "Agentic Loop: goals, results, cancels, signals, endings. Durable.",
            "subjects": [subjects.START, subjects.TOOL_RESULT, subjects.CANCEL, subjects.SIGNAL, *LIFECYCLE],
            "republish": TO_THE_LOG,
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_age": 14 * DAY_S,
            "max_bytes": int(max_gib * GIB),
            "duplicate_window": DAY_S,
            "num_replicas": replicas,
            "deny_delete": True,
            "allow_direct": True,
        },
    )


def _requests(replicas: int, max_gib: float) -> StreamSpec:
    """The oldest give way: a request is of use until its tool has answered."""
    return StreamSpec(
        subjects.STREAM_REQUESTS,
        {
            "description": "Agentic Loop: tool requests. Can be published again from the journal.",
            "subjects": [subjects.ALL_TOOL_REQUESTS],
            "republish": TO_THE_LOG,
            "retention": "limits",
            "storage": "file",
            **_without_fsync(replicas),
            "discard": "old",
            "max_age": 14 * DAY_S,
            "max_bytes": int(min(1.0, max_gib / 4) * GIB),
            "duplicate_window": DAY_S,
            "num_replicas": replicas,
            "allow_direct": True,
        },
    )


def _without_fsync(replicas: int) -> dict[str, str]:
    """A server with replicas has no such mode, and needs none."""
    return {"persist_mode": "async"} if replicas == 1 else {}


def _progress(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_PROGRESS,
        {
            "description": "Agentic Loop: progress and accepted wakes. Can be published again from the journal.",
            "subjects": [subjects.PROGRESS, subjects.WAKE_ACCEPTED],
            "republish": TO_THE_LOG,
            "retention": "limits",
            "storage": "file",
            **_without_fsync(replicas),
            "discard": "old",
            "max_age": DAY_S,
            "max_bytes": int(min(0.25, max_gib / 8) * GIB),
            "duplicate_window": 120.0,
            "num_replicas": replicas,
        },
    )


def _dead_letters(replicas: int, max_gib: float) -> StreamSpec:
    advisories = "$JS.EVENT.ADVISORY.CONSUMER"
    return StreamSpec(
        subjects.STREAM_DEAD_LETTERS,
        {
            "description": "Agentic Loop: messages that could not be handled, with the reason in their headers.",
            "subjects": [
                subjects.ALL_DEAD_LETTERS,
                subjects.REJECTED,
                *(f"{advisories}.MAX_DELIVERIES.{stream}.>" for stream in CONSUMED),
                *(f"{advisories}.MSG_TERMINATED.{stream}.>" for stream in CONSUMED),
            ],
            "republish": RePublish(src=subjects.REJECTED, dest=f"{subjects.LOG}.{subjects.REJECTED}"),
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "max_age": 30 * DAY_S,
            "max_bytes": int(min(1.0, max_gib / 4) * GIB),
            "duplicate_window": DAY_S,
            "num_replicas": replicas,
        },
    )


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
    about = "An executor takes its requests."
    return _consumer(subjects.STREAM_REQUESTS, executor.name, about, list(executor.subjects), 64)


def _notices(stream: str, name: str, description: str, filters: list[str]) -> ConsumerSpec:
    """A consumer of what is told to others: from now on, for what ended long before must not be told as news."""
    spec = _consumer(stream, name, description, filters, 256)
    return ConsumerSpec(stream, name, {**spec.settings, "deliver_policy": "new"})
