"""Texts of tools, models and callers, made fit to be shown: nothing stays that moves a cursor, hides, or turns letters.

The set of unseen characters is fixed here and not asked of Python's Unicode tables: a trail must come out the same
under every version of Python.
"""

import re
from datetime import UTC, datetime, timedelta

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """`text` with a sign for each control, bidirectional, zero-width or other unseen character; lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_sign, text.replace("\r\n", "\n"))


def json_visible(json_text: str) -> str:
    """JSON with the same characters as its own `\\u` escapes: another spelling of the same value."""
    if json_text.isascii() and json_text.isprintable():
        return json_text
    return _UNSEEN.sub(_escape, json_text)


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line, for terminals and lists."""
    return clipped(" ".join(visible(text).split()), limit)


def instant(at: datetime) -> str:
    """An instant for people: `2026-11-21 12:00:05Z`, with milliseconds where there are any."""
    return _utc(at, "milliseconds" if at.microsecond else "seconds").replace("T", " ")


def duration(time: timedelta) -> str:
    """A duration for people: `0.4 s`, `4:07` (minutes), `1:02:03` (hours)."""
    whole = max(0.0, time.total_seconds())
    if whole < 60:
        return f"{whole:.1f} s"
    minutes, rest = divmod(int(whole), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rfc3339(at: datetime) -> str:
    """An instant for programs, in full."""
    return _utc(at, "auto")


def _utc(at: datetime, timespec: str) -> str:
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
