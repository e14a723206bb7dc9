"""Foreign texts, instants and durations made fit to be shown, and what all API views share."""

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict

from groundwork.service.invisible import visible
from schemas.status import Finding


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
