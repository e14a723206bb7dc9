"""The copy of the shared rows in a gateway's own SQLite file: each fact applied, in the order of the stream.

An unreadable fact, or one of a newer version, is left out and logged.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ductile_gateway.store import ledger, outbox
from ductile_gateway.store.outbox import FORGET
from ductile_gateway.store.shared import artifact_names, calls, owed, pins
from ductile_gateway.store.shared.rows import (
    ARTIFACTS,
    CALL,
    FORGOTTEN,
    NOTIFICATION,
    PINS,
    RECEIVED,
    Newer,
    subject_of,
    unframed,
)
from groundwork.nats.shared_log import Fact

ALL = -1
TABLES = ("calls", "overdue", "artifacts", "received", "outbox", "pins")

_CALL_COLUMNS = (
    *("position", "key", "digest", "trace_id", "span_id", "sampled", "route", "may_repeat", "deadline_at", "request"),
    *("run_id", "step", "attempt", "task", "round", "answer", "completed_at", "published", "by"),
    *("begun_at", "job_id", "way", "newest"),
)
_OWED_COLUMNS = (
    *("position", "target", "lane", "key", "run_id", "type", "url", "body", "accepted_at", "tries", "due_at", "why"),
    *("outcome", "settled_at", "by"),
)


def _put(table: str, columns: tuple[str, ...], unique: str) -> str:
    """The statement that puts a row in place of the one that has the same `unique` columns."""
    values = ", ".join(f":{column}" for column in columns)
    again = ", ".join(f"{column} = excluded.{column}" for column in columns if column != "position")
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) ON CONFLICT ({unique}) DO UPDATE SET {again}"  # noqa: S608 - names of ours


_PUT_CALL = _put("calls", _CALL_COLUMNS, "key")
_PUT_OWED = _put("outbox", _OWED_COLUMNS, "target, key")
_PUT_OVERDUE = "INSERT OR REPLACE INTO overdue (key, job_id, pipeline, since) VALUES (?, ?, ?, ?)"
_DROP_OVERDUE = "DELETE FROM overdue WHERE key = ?"
_DROP_ARTIFACTS = "DELETE FROM artifacts WHERE run_id = ?"
_PUT_ARTIFACT = "INSERT OR REPLACE INTO artifacts (run_id, name, key, place, sha256, bytes) VALUES (?, ?, ?, ?, ?, ?)"
_PUT_RECEIVED = "INSERT OR REPLACE INTO received VALUES (:source, :identity, :event_key, :received_at)"
_PUT_PIN = "INSERT INTO pins (place, id, public, pinned_at) VALUES (?, ?, ?, ?)"

log = logging.getLogger(__name__)


def apply(connection: sqlite3.Connection, fact: Fact) -> None:
    put = _KINDS.get(fact.subject.split(".")[1])
    try:
        if put:
            put(connection, fact)
    except (Newer, ValueError, KeyError, TypeError, sqlite3.IntegrityError, sqlite3.ProgrammingError) as error:
        log.error(  # noqa: TRY400
            "a fact of the gateways cannot be read: it is left out",
            extra={"subject": fact.subject, "seq": fact.seq, "why": str(error)},
        )


def _put_pins(connection: sqlite3.Connection, fact: Fact) -> None:
    connection.execute("DELETE FROM pins")
    rows = [(place, pin.id, pin.public, pin.pinned_at) for place, pin in enumerate(pins.read_fact(fact.body))]
    connection.executemany(_PUT_PIN, rows)


def _put_call(connection: sqlite3.Connection, fact: Fact) -> None:
    call = calls.read_fact(fact.body, seq=fact.seq)
    if fact.subject != subject_of(CALL, call.key):
        raise ValueError(f"it is of {call.key}")
    columns: dict[str, Any] = asdict(call) | {"request": call.request, "answer": call.answer}
    connection.execute(_PUT_CALL, columns)
    if call.late_job is None:
        connection.execute(_DROP_OVERDUE, (call.key,))
    else:
        connection.execute(_PUT_OVERDUE, (call.key, call.late_job, call.late_pipeline, call.late_since))


def _put_artifacts(connection: sqlite3.Connection, fact: Fact) -> None:
    run_id, artifacts = artifact_names.read_fact(fact.body)
    connection.execute(_DROP_ARTIFACTS, (run_id,))
    rows = [(run_id, one.name, one.key, one.place, one.sha256, one.size) for one in artifacts]
    connection.executemany(_PUT_ARTIFACT, rows)


def _put_received(connection: sqlite3.Connection, fact: Fact) -> None:
    connection.execute(_PUT_RECEIVED, unframed(fact.body)[0])


def _put_owed(connection: sqlite3.Connection, fact: Fact) -> None:
    connection.execute(_PUT_OWED, asdict(owed.read_fact(fact.body, seq=fact.seq)))


def _forget(connection: sqlite3.Connection, fact: Fact) -> None:
    before = int(unframed(fact.body)[0]["before"])
    match fact.subject.split(".")[2:]:
        case ["call"]:
            ledger.forget(connection, before, ALL)
        case ["received"]:
            outbox.forget_received(connection, before, ALL)
        case ["notification"]:
            connection.execute(FORGET, (before, ALL))


_KINDS: Mapping[str, Callable[[sqlite3.Connection, Fact], None]] = {
    CALL: _put_call,
    ARTIFACTS: _put_artifacts,
    RECEIVED: _put_received,
    NOTIFICATION: _put_owed,
    PINS: _put_pins,
    FORGOTTEN: _forget,
}
