"""The row of a delivery that gateways owe to a receiver, and every change that it knows. Pure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime

from ductile_gateway.outbound.dispatch import Outcome
from ductile_gateway.outbound.notifications import Notification
from ductile_gateway.store.shared.rows import Row, framed, unframed
from groundwork.sqlite.file import microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """The columns of the table `outbox`. `position`: the sequence of its first fact, not known to that one."""

    target: str
    lane: str
    key: str
    run_id: str
    type: str
    url: str
    body: bytes
    accepted_at: int
    due_at: int
    tries: int = 0
    why: str = ""
    outcome: str | None = None
    settled_at: int | None = None
    by: str = ""
    position: int | None = None


Change = Callable[[Owed], Owed]
_COLUMNS = frozenset(field.name for field in fields(Owed))


def owed(delivery: Notification, *, by: str) -> Owed:
    at = microseconds(delivery.accepted_at)
    named = {name: getattr(delivery, name) for name in ("target", "lane", "key", "run_id", "type", "url", "body")}
    return Owed(**named, accepted_at=at, due_at=at, tries=delivery.tries, by=by)


def written(one: Owed) -> bytes:
    columns = asdict(one)
    body = columns.pop("body")
    return framed(columns, body)


def read_fact(fact: bytes, *, seq: int) -> Owed:
    columns, body = unframed(fact)
    known = {name: value for name, value in columns.items() if name in _COLUMNS}
    try:
        return Owed(**known | {"position": known.get("position") or seq}, body=body)
    except TypeError as error:
        raise ValueError(str(error)) from error


def changed(row: Row, change: Change) -> bytes | None:
    """The row after a change; None where it is not there, settled, or as it was."""
    if row.body is None:
        return None
    one = read_fact(row.body, seq=row.seq)
    wanted = one if one.outcome else change(one)
    return None if wanted == one else written(wanted)


def claimed(one: Owed, *, by: str, may: Callable[[str], bool]) -> Owed:
    return replace(one, by=by) if may(one.by) else one


def settled(one: Owed, outcome: Outcome, *, at: datetime, tries: int | None = None) -> Owed:
    tries = one.tries if tries is None else tries
    return replace(one, outcome=outcome, settled_at=microseconds(at), tries=tries, body=b"", url="")


def postponed(one: Owed, due_at: datetime, *, tries: int, why: str, by: str) -> Owed:
    """To be tried later by the same gateway; nothing is changed where another has it by now."""
    return replace(one, due_at=microseconds(due_at), tries=tries, why=why) if one.by == by else one
