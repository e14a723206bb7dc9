"""Texts for people: foreign text made safe to show, instants, findings, what a run asks; names of runs; API views."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from groundwork.service.errors import Exit, NotDone
from groundwork.service.invisible import visible
from schemas.status import Finding


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


def clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def one_line(text: str, limit: int = 300) -> str:
    return clipped(" ".join(visible(text).split()), limit)


def instant(at: datetime) -> str:
    """`2026-11-21 12:00:05Z`, with milliseconds unless they are zero."""
    return _utc(at, "milliseconds" if at.microsecond else "seconds").replace("T", " ")


def duration(time: timedelta) -> str:
    """`0.4 s`, `4:07` (minutes), `1:02:03` (hours)."""
    whole = max(0.0, time.total_seconds())
    if whole < 60:
        return f"{whole:.1f} s"
    minutes, rest = divmod(int(whole), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rfc3339(at: datetime) -> str:
    return _utc(at, "auto")


def _utc(at: datetime, timespec: str) -> str:
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


LAST = "last"
MOST_CANDIDATES = 6
"""Runs to look up for a name: one more than an ambiguous name lists."""

_RUN_ID = re.compile("run_[0-9A-HJKMNP-TV-Z]{26}")


def is_run_id(name: str) -> bool:
    return _RUN_ID.fullmatch(name) is not None


def id_part(name: str) -> str:
    """Text to search run ids for; empty for the newest run."""
    return "" if name == LAST else name.upper().replace("RUN_", "run_")


def resolve(name: str, newest: Sequence[tuple[str, str, str]]) -> str:
    """Id of the one run that `name` means: an id, a part of it that no other run has, or `last` for the newest.

    `newest`: id, status and goal of the newest with that part in their ids. Raises NotDone for none, and for several.
    """
    if not newest:
        text = "there is no run yet" if name == LAST else f"no run has {one_line(name, 60)} in its id"
        raise NotDone(f"{text}: `agentic runs` lists them", Exit.NOT_FOUND, {"code": "unknown_run"})
    if len(newest) == 1 or name == LAST:
        return newest[0][0]
    listed = newest[: MOST_CANDIDATES - 1]
    named = [f"  {run_id}  {status:<9}  {one_line(goal, 60)}" for run_id, status, goal in listed]
    more = ["  and others"] if len(newest) == MOST_CANDIDATES else []
    text = "\n".join((f"several runs have {name} in their id; which one is meant?", *named, *more))
    raise NotDone(text, Exit.USAGE, {"code": "ambiguous_run"})


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, mark="ok", text=visible(text))


def warning(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="warning", text=visible(text), remedy=visible(remedy))


def wrong(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="wrong", text=visible(text), remedy=visible(remedy))


def ask_lines(asks: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Names and texts of a run's ask, in reading order; an empty name continues the line before.

    `asks` is the API's JSON, so that commands need not load the core. A budget is explained by its reason alone.
    """
    if asks is None:
        return
    match asks["kind"]:
        case "approval" | "in_doubt":
            yield from _call_lines(asks)
        case "question":
            yield "asks", asks["question"]
            yield from (("choice", choice) for choice in asks["choices"])
            more = (("tried", asks["tried"]), ("why", asks["would_change"]), ("because", asks["reason"]))
            yield from ((name, text) for name, text in more if text)
    if named := asks["arguments_hash"] or asks.get("question_hash"):
        yield "hash", named
    if asks["untrusted"]:
        yield "warning", f"{asks['untrusted']} brought untrusted content, whose author may be behind this"
    if asks["expires_at"]:
        yield "until", f"{asks['expires_at'][:10]} {asks['expires_at'][11:19]} UTC"


def _call_lines(asks: dict[str, Any]) -> Iterator[tuple[str, str]]:
    task = f", {asks['task']} of round {asks['round']}" if asks.get("task") else ""
    call = f"step {asks['step']}{task}: {asks['tool']} {asks['command']}"
    yield "approve" if asks["kind"] == "approval" else "in doubt", call if asks["tool"] else "another goal than was set"
    for name, value in (asks["arguments"] or {}).items():
        yield "", f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    yield "because", asks["reason"]
