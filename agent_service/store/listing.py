"""Lists of runs, read from their rows."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from agent_service.core.waiting import Status
from agent_service.run.lines import RunFilter, RunLine, Sum, parse_line
from groundwork.sqlite.file import SqliteFile, instant, microseconds

AFTER_EVERY_ID = "~"
"""Sorts after all that a run id may hold."""
END_OF_TIME = 2**62
"""Microseconds after every instant."""
LOOKED_INTO_AT_ONCE = 2000
"""CommitRows that are looked into before others may read: 20 to 50 ms."""
UNREADABLE = "its row"


async def read_list(
    database: SqliteFile, sql: dict[str, str], wanted: RunFilter, *, limit: int, before: str | None
) -> Sequence[RunLine]:
    """Runs, newest first, from after run `before` on; looked for stretch by stretch, where rows must be looked into."""
    found: list[RunLine] = []
    below = before or AFTER_EVERY_ID
    if wanted.wake_id:
        named = [run_id for run_id, _ in await database.read(sql["wake"], (wanted.wake_id,)) if run_id < below]
        values = [_values(wanted, run_id + AFTER_EVERY_ID, run_id, limit) for run_id in named]
        return [_line(row) for one in values for row in await database.read(sql["runs"], one)]
    while below and len(found) < limit:
        lowest, next_below = await _stretch(database, sql, wanted, below)
        rows = await database.read(sql["runs"], _values(wanted, below, lowest, limit - len(found)))
        found += map(_line, rows)
        below = next_below
    return found


async def read_sums(database: SqliteFile, sql: dict[str, str], day: date) -> Sequence[Sum]:
    """Over the runs that were accepted on a day (UTC)."""
    begins = microseconds(datetime.combine(day, time(), UTC))
    return [Sum(*row) for row in await database.read(sql["sums"], (begins, begins + 86_400_000_000))]


async def _stretch(database: SqliteFile, sql: dict[str, str], wanted: RunFilter, below: str) -> tuple[str, str]:
    """The lowest id to look at now, and below which to look next; empty for no bound, and for nowhere."""
    if not (wanted.text or wanted.run or wanted.tool or wanted.since or wanted.until or wanted.caller):
        return "", ""
    for lowest, accepted_at in await database.read(sql["stretch"], (below, LOOKED_INTO_AT_ONCE)):
        past = wanted.since is not None and instant(accepted_at) < wanted.since
        return lowest, "" if past else lowest
    return "", ""


def _values(wanted: RunFilter, below: str, lowest: str, limit: int) -> tuple[object, ...]:
    statuses = json.dumps([status.value for status in wanted.statuses or Status])
    since = microseconds(wanted.since) if wanted.since else 0
    until = microseconds(wanted.until) if wanted.until else END_OF_TIME
    # LIKE knows the case of ASCII letters only: of all others, both are looked for
    lower, upper = _pattern(wanted.text.lower()), _pattern(wanted.text.upper())
    return statuses, below, lowest, since, lower, upper, wanted.tool, limit, until, wanted.caller, wanted.run


def _pattern(text: str) -> str:
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%" if text else ""


def _line(row: tuple[Any, ...]) -> RunLine:
    run_id, wake_id, status, goal, summary, accepted_at, touched_at, columns, caller = row
    line = {
        "run_id": run_id,
        "wake_id": wake_id,
        "status": Status(status),
        "goal": goal,
        "summary": summary,
        "accepted_at": instant(accepted_at),
        "updated_at": instant(touched_at),
        "caller": caller,
    }
    try:
        return parse_line(line, columns)
    except (ValueError, TypeError):
        return RunLine(**line, damaged=UNREADABLE)
