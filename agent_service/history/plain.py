"""Foreign texts, instants and asks made fit to be shown, and what all API views share."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from groundwork.service.errors import Exit, NotDone
from groundwork.service.invisible import visible
from schemas.status import Finding
from schemas.values import dataclass


def clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def one_line(text: str, limit: int = 300) -> str:
    return clipped(" ".join(visible(text).split()), limit)


def instant(at: datetime) -> str:
    """`2026-11-21 12:00:05Z`, with milliseconds where there are any."""
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


class View(BaseModel):
    """No field is invented, and each has the name that callers see or its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, mark="ok", text=visible(text))


def warning(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="warning", text=visible(text), remedy=visible(remedy))


def wrong(name: str, text: str, *, remedy: str) -> Finding:
    return Finding(name=name, mark="wrong", text=visible(text), remedy=visible(remedy))


# Which run is meant: by its id or any part of it that no other has, or by `last`, the newest


LAST = "last"
LOOKED_AT = 6
"""Runs; one more than are named where several fit."""

_WHOLE = re.compile("run_[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class Candidate:
    run_id: str
    status: str
    goal: str


def is_whole(name: str) -> bool:
    return _WHOLE.fullmatch(name) is not None


def part(name: str) -> str:
    """The part of its id that a run is looked for by; empty for the newest."""
    return "" if name == LAST else name.upper().replace("RUN_", "run_")


def meant(name: str, newest: Sequence[Candidate]) -> str:
    """The id that `name` means, of the LOOKED_AT newest with that part. Raises NotDone for none, and for several."""
    if not newest:
        text = "there is no run yet" if name == LAST else f"no run has {one_line(name, 60)} in its id"
        raise NotDone(f"{text}: `agentic runs` lists them", Exit.NOT_FOUND, {"code": "unknown_run"})
    if len(newest) == 1 or name == LAST:
        return newest[0].run_id
    named = [f"  {run.run_id}  {run.status:<9}  {one_line(run.goal, 60)}" for run in newest[: LOOKED_AT - 1]]
    more = ["  and others"] if len(newest) == LOOKED_AT else []
    text = "\n".join((f"several runs have {name} in their id; which one is meant?", *named, *more))
    raise NotDone(text, Exit.USAGE, {"code": "ambiguous_run"})


# The ask of a run, from its API view: commands load this without the core


def asked(asks: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Names and texts in reading order; a text without a name goes on with the one before. `asks` is as the API shows
    it. Budgets are told by their reason alone.
    """
    if asks is None:
        return
    match asks["kind"]:
        case "approval" | "in_doubt":
            yield from _call(asks)
        case "question":
            yield "asks", asks["question"]
            yield from (("choice", choice) for choice in asks["choices"])
            told = (("tried", asks["tried"]), ("why", asks["would_change"]), ("because", asks["reason"]))
            yield from ((name, text) for name, text in told if text)
    if asks["untrusted"]:
        yield "warning", f"{asks['untrusted']} brought untrusted content, whose author may be behind this"
    if asks["expires_at"]:
        yield "until", f"{asks['expires_at'][:10]} {asks['expires_at'][11:19]} UTC"


def _call(asks: dict[str, Any]) -> Iterator[tuple[str, str]]:
    task = f", {asks['task']} of round {asks['round']}" if asks.get("task") else ""
    call = f"step {asks['step']}{task}: {asks['tool']} {asks['command']}"
    yield "approve" if asks["kind"] == "approval" else "in doubt", call if asks["tool"] else "another goal than was set"
    for name, value in (asks["arguments"] or {}).items():
        yield "", f"{_exactly(name)}: {_exactly(value)}"
    yield "because", asks["reason"]
    if asks["arguments_hash"]:
        yield "hash", asks["arguments_hash"]


def _exactly(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
