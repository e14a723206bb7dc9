"""The streams on a NATS server, one for each kind of publisher, so that none fills another's.

AGENTIC_STARTS is a queue: taken messages leave it, and a full one refuses (discard new). The others drop the oldest
(discard old), which was taken long ago or is said again from the journal or the ledger. No deletes: deleting the newest
message would lose the dedupe ids at a crash. No purges.

Requests, progress and acceptance do not sync: after a server crash the agent says again what is outstanding.

Streams that hold a shared store are the truth: discard new, no age limit, purged only by retention rules.
"""

from typing import Any

from nats.js.api import RePublish

from groundwork.nats.topology import StreamSpec
from schemas import subjects

DAY_S = 86400.0
GIB = 1024**3
UNCOMPRESSED = {"compression": "none"}
"""A server that is killed may damage its copy of a compressed stream (nats-server 2.15.1): two such copies lose it."""
CONSUMED = (subjects.STREAM, subjects.STREAM_STARTS, subjects.STREAM_RESULTS, subjects.STREAM_REQUESTS)
ADVISORIES, UNHANDLED = "$JS.EVENT.ADVISORY.CONSUMER", ("MAX_DELIVERIES", "MSG_TERMINATED")
REJECTED_TO_THE_LOG = RePublish(src=subjects.REJECTED, dest=f"{subjects.LOG}.{subjects.REJECTED}")
TO_THE_LOG = RePublish(src=">", dest=f"{subjects.LOG}.>")
"""What a stream has stored is said once more for onlookers: on the subject itself they hear also what it refused, or
dropped as a repetition."""


def streams(replicas: int, max_gib: float) -> tuple[StreamSpec, ...]:
    """`max_gib` bounds those of work together, on disk."""
    durable = {"num_replicas": replicas, "deny_delete": True, "deny_purge": True, "allow_direct": True}
    passing = {"num_replicas": replicas, "persist_mode": "async" if replicas == 1 else None}
    return (
        _stream(
            subjects.STREAM,
            "cancels, signals, endings. Durable.",
            [subjects.CANCEL, subjects.SIGNAL, *subjects.LIFECYCLE],
            max_gib / 2,
            durable,
        ),
        _stream(
            subjects.STREAM_STARTS,
            "goals that nobody has taken up yet. Durable.",
            [subjects.START],
            max_gib / 8,
            durable | {"retention": "workqueue", "discard": "new"},
        ),
        _stream(
            subjects.STREAM_RESULTS,
            "results of tools. Durable.",
            [subjects.TOOL_RESULT],
            max_gib * 3 / 8,
            durable,
        ),
        _stream(
            subjects.STREAM_REQUESTS,
            "tool requests. Can be published again from the journal.",
            [subjects.ALL_TOOL_REQUESTS],
            min(1.0, max_gib / 4),
            passing | {"allow_direct": True},
        ),
        _stream(
            subjects.STREAM_PROGRESS,
            "progress and accepted wakes. Can be published again from the journal.",
            [subjects.PROGRESS, subjects.WAKE_ACCEPTED],
            min(0.25, max_gib / 8),
            passing | {"max_age": DAY_S, "duplicate_window": 120.0},
        ),
        _stream(
            subjects.STREAM_DEAD_LETTERS,
            "messages that could not be handled, with the reason in their headers.",
            [
                subjects.ALL_DEAD_LETTERS,
                subjects.REJECTED,
                *(f"{ADVISORIES}.{kind}.{stream}.>" for kind in UNHANDLED for stream in CONSUMED),
            ],
            min(1.0, max_gib / 4),
            {"num_replicas": replicas, "max_age": 30 * DAY_S, "republish": REJECTED_TO_THE_LOG},
        ),
    )


def _stream(name: str, about: str, taken: list[str], gib: float, own: dict[str, Any]) -> StreamSpec:
    return StreamSpec(
        name,
        {
            "description": f"Agentic Loop: {about}",
            "subjects": taken,
            **UNCOMPRESSED,
            "republish": TO_THE_LOG,
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "max_age": 14 * DAY_S,
            "max_bytes": int(gib * GIB),
            "duplicate_window": DAY_S,
            **own,
        },
    )


def shared_streams(replicas: int, max_gib: float) -> tuple[StreamSpec, ...]:
    """The stores that agents and gateways share. The gateways' newest fact of a subject replaces those before."""
    runs = _store(subjects.STREAM_RUNS, subjects.STORE, "the journals of all runs", replicas, max_gib)
    ledger = _store(subjects.STREAM_LEDGER, subjects.LEDGER, "what gateways know of calls", replicas, max_gib / 2)
    return runs, StreamSpec(ledger.name, {**ledger.settings, "allow_rollup_hdrs": True})


def _store(stream: str, facts: str, held: str, replicas: int, gib: float) -> StreamSpec:
    return StreamSpec(
        stream,
        {
            "description": f"Agentic Loop: {held}, shared by several. Durable; back it up.",
            "subjects": [f"{facts}.>"],
            **UNCOMPRESSED,
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_bytes": int(gib * GIB),
            "duplicate_window": 120.0,
            "num_replicas": replicas,
            "deny_delete": True,
            "allow_direct": True,
        },
    )
