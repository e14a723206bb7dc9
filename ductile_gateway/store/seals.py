"""Seals: by keys that lie outside the store, each row says that this gateway wrote what is in it.

An answer that other hands have changed would be told to a run as what its tool said, an intent would be carried out as
it was changed, and an artifact's digest would let another content pass. What has no seal that fits is none of these.
"""

import sqlite3
from pathlib import Path

from groundwork.service.key_ring import KeyRing
from groundwork.sqlite.file import SqliteFile

INTENT, ANSWER, ARTIFACT, PINS, RESTORED = "intent", "answer", "artifact", "pins", "restored"


class Seals:
    """Makes and checks them."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    def make(self, kind: str, *parts: str | bytes) -> str:
        return self._ring.mac(kind, *parts)

    def fits(self, seal: str | None, kind: str, *parts: str | bytes) -> bool:
        return seal is not None and self._ring.checks(seal, kind, *parts)


def parts_of(row: tuple[object, ...]) -> tuple[str, tuple[str | bytes, ...]]:
    """What of a call's row is sealed, and as what: key, digest, route, may_repeat, deadline_at, request, answer."""
    key, digest, route, may_repeat, deadline_at, request, answer = row
    if isinstance(answer, bytes):
        return ANSWER, (str(key), str(digest), answer)
    body = request if isinstance(request, bytes) else b""
    return INTENT, (str(key), str(digest), str(route), str(deadline_at), str(may_repeat), body)


async def seal_once(file: SqliteFile, keys_file: Path, ring: KeyRing) -> int:
    """Seal what an earlier version has left, as it is; returns how many calls. Beside the keys is noted that it is
    done: from then on what has no seal was not written by the gateway."""
    done = keys_file.with_name(f"{keys_file.name}.sealed")
    if done.exists():
        return 0
    sealed = await file.write(lambda connection: _seal_all(connection, ring))
    done.touch(mode=0o600)
    return sealed


def _seal_all(connection: sqlite3.Connection, ring: KeyRing) -> int:
    calls = connection.execute(
        "SELECT position, key, digest, route, may_repeat, deadline_at, request, answer FROM calls WHERE seal IS NULL"
    ).fetchall()
    for position, *row in calls:
        kind, parts = parts_of(tuple(row))
        connection.execute("UPDATE calls SET seal = ? WHERE position = ?", (ring.mac(kind, *parts), position))
    named = connection.execute("SELECT run_id, name, sha256 FROM artifacts WHERE seal IS NULL").fetchall()
    for run_id, name, sha256 in named:
        seal = ring.mac(ARTIFACT, run_id, name, sha256 or "")
        connection.execute("UPDATE artifacts SET seal = ? WHERE run_id = ? AND name = ?", (seal, run_id, name))
    return len(calls)
