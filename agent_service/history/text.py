"""Texts for people: foreign text made safe to show, instants, findings, what a run asks; and the base of API views."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

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
