"""The streams, consumers and buckets that the program needs on a NATS server.

`AGENTIC` keeps work and endings: limits retention (every consumer and viewer sees everything), discard new (the bus
pushes back instead of losing work), no deletes (deleting the newest message would lose the dedupe ids at a crash).
Progress and acceptance have a stream without a sync of its own, because the journal can say them again.
"""

from groundwork.nats.topology import BucketSpec, ConsumerSpec, KeyValueSpec, StreamSpec, Topology
from schemas import subjects

DAY_S = 86400.0
GIB = 1024**3
ACK_WAIT_S = 30.0
ENDINGS = (subjects.COMPLETED, subjects.ESCALATED, subjects.FAILED, subjects.CANCELLED)


MAX_GIB = 10.0


def topology(*, replicas: int = 1, max_gib: float = MAX_GIB) -> Topology:
    """What should exist. `replicas` is 1 or 3; `max_gib` bounds the stream of work on disk, and so the artifacts.

    The server sets all of it aside at once: see `reserved_gib`.
    """
    return Topology(
        streams=(_work(replicas, max_gib), _progress(replicas, max_gib), _dead_letters(replicas, max_gib)),
        consumers=(
            _consumer(subjects.DURABLE_LOOP, [subjects.START, subjects.TOOL_RESULT], 256),
            _consumer(subjects.DURABLE_CONTROL, [subjects.CANCEL, subjects.SIGNAL], 64),
            _consumer(subjects.DURABLE_TOOLS, [subjects.ALL_TOOL_REQUESTS], 256),
            _notices(subjects.STREAM, subjects.DURABLE_LIFECYCLE, list(ENDINGS)),
            _notices(subjects.STREAM_PROGRESS, subjects.DURABLE_PROGRESS, [subjects.PROGRESS]),
        ),
        buckets=(
            BucketSpec(
                subjects.ARTIFACT_BUCKET,
                {"storage": "file", "num_replicas": replicas, "max_bytes": int(max_gib * GIB)},
            ),
            KeyValueSpec(
                subjects.LEASE_BUCKET,
                {"storage": "file", "num_replicas": replicas, "max_bytes": GIB // 1024},
            ),
        ),
    )


def reserved_gib(max_gib: float) -> float:
    """What the server has to have room for, in each of its replicas."""
    streams = topology(max_gib=max_gib).all_streams()
    return float(sum(stream.settings["max_bytes"] for stream in streams)) / GIB


def _work(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM,
        {
            "description": "Agentic Loop: goals, tool requests and results, endings. Durable.",
            "subjects": [
                subjects.START,
                subjects.ALL_TOOL_REQUESTS,
                subjects.TOOL_RESULT,
                subjects.CANCEL,
                subjects.SIGNAL,
                *ENDINGS,
            ],
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


def _progress(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_PROGRESS,
        {
            "description": "Agentic Loop: progress and accepted wakes. Can be published again from the journal.",
            "subjects": [subjects.PROGRESS, subjects.WAKE_ACCEPTED],
            "retention": "limits",
            "storage": "file",
            # Written without an fsync; a server with replicas has no such mode, and needs none.
            **({"persist_mode": "async"} if replicas == 1 else {}),
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
                f"{advisories}.MAX_DELIVERIES.{subjects.STREAM}.>",
                f"{advisories}.MSG_TERMINATED.{subjects.STREAM}.>",
            ],
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "max_age": 30 * DAY_S,
            "max_bytes": int(min(1.0, max_gib / 4) * GIB),
            "duplicate_window": DAY_S,
            "num_replicas": replicas,
        },
    )


def _consumer(name: str, filters: list[str], max_ack_pending: int) -> ConsumerSpec:
    """Redelivery has no backoff: it would replace ack_wait, and a handler asks for its own delay."""
    return ConsumerSpec(
        subjects.STREAM,
        name,
        {
            "filter_subjects": filters,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S,
            "max_ack_pending": max_ack_pending,
            "max_deliver": -1,
            "deliver_policy": "all",
        },
    )


def _notices(stream: str, name: str, filters: list[str]) -> ConsumerSpec:
    """A consumer of what is told to others: from now on, for what ended long before must not be told as news."""
    spec = _consumer(name, filters, 256)
    return ConsumerSpec(stream, name, {**spec.settings, "deliver_policy": "new"})
