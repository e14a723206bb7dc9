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
TO_THE_LOG = RePublish(src=">", dest=f"{subjects.LOG}.>")
"""What a stream has stored is said once more for onlookers: on the subject itself they hear also what it refused, or
dropped as a repetition."""


def streams(replicas: int, max_gib: float) -> tuple[StreamSpec, ...]:
    """`max_gib` bounds those of work together, on disk."""
    return (
        _work(replicas, max_gib / 2),
        _starts(replicas, max_gib / 8),
        _results(replicas, max_gib * 3 / 8),
        _requests(replicas, max_gib),
        _progress(replicas, max_gib),
        _dead_letters(replicas, max_gib),
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


def _durable(replicas: int, gib: float) -> dict[str, Any]:
    return {
        **UNCOMPRESSED,
        "republish": TO_THE_LOG,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 14 * DAY_S,
        "max_bytes": int(gib * GIB),
        "duplicate_window": DAY_S,
        "num_replicas": replicas,
        "deny_delete": True,
        "deny_purge": True,
        "allow_direct": True,
    }


def _work(replicas: int, gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM,
        _durable(replicas, gib)
        | {
            "description": "Agentic Loop: cancels, signals, endings. Durable.",
            "subjects": [subjects.CANCEL, subjects.SIGNAL, *subjects.LIFECYCLE],
        },
    )


def _starts(replicas: int, gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_STARTS,
        _durable(replicas, gib)
        | {
            "description": "Agentic Loop: goals that nobody has taken up yet. Durable.",
            "subjects": [subjects.START],
            "retention": "workqueue",
            "discard": "new",
        },
    )


def _results(replicas: int, gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_RESULTS,
        _durable(replicas, gib)
        | {"description": "Agentic Loop: results of tools. Durable.", "subjects": [subjects.TOOL_RESULT]},
    )


def _requests(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_REQUESTS,
        {
            "description": "Agentic Loop: tool requests. Can be published again from the journal.",
            "subjects": [subjects.ALL_TOOL_REQUESTS],
            **UNCOMPRESSED,
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


def _without_fsync(replicas: int) -> dict[str, str | None]:
    return {"persist_mode": "async" if replicas == 1 else None}


def _progress(replicas: int, max_gib: float) -> StreamSpec:
    return StreamSpec(
        subjects.STREAM_PROGRESS,
        {
            "description": "Agentic Loop: progress and accepted wakes. Can be published again from the journal.",
            "subjects": [subjects.PROGRESS, subjects.WAKE_ACCEPTED],
            **UNCOMPRESSED,
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
            **UNCOMPRESSED,
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
