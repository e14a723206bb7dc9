"""What all drawings share: safe texts, instants, marks and colours, and rows."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.history.plain import duration, one_line
from groundwork.service.invisible import visible

MARKS = {
    "queued": ("…", "dim"),
    "running": ("▶", "cyan"),
    "paused": ("‖", "yellow"),
    "done": ("✓", "green"),
    "escalated": ("!", "yellow"),
    "failed": ("✗", "red"),
    "cancelled": ("∅", "magenta"),
    "ok": ("✓", "green"),
    "error": ("✗", "red"),
    "refused": ("!", "yellow"),
    "open": ("▶", "cyan"),
    "waiting": ("…", "yellow"),
    "over": ("·", "dim"),
    "continuation": ("↻", "cyan"),
}
UNKNOWN = ("?", "")


LONGEST_TEXT, LONGEST_RESULT = 600, 160


def fit(value: Any) -> Any:
    """A copy in which every text is safe to be shown: what could steer a terminal is visible in it."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): fit(item) for key, item in value.items()}
    return [fit(item) for item in value] if isinstance(value, list) else value


def day_and_time(instant: str) -> str:
    return f"{instant[:10]} {instant[11:19]} UTC"


def ago(instant: str) -> str:
    return duration(datetime.now(UTC) - datetime.fromisoformat(instant))


def status(name: str, *, said: str = "", style: str | None = None) -> Text:
    mark, colour = MARKS.get(name, UNKNOWN)
    return Text.assemble((f"{mark} ", colour), (said or name, colour if style is None else style))


def named_rows(rows: Iterable[tuple[str, str | Text]], names: str = "dim") -> Table:
    made = Table.grid(padding=(0, 1))
    made.add_column(style=names, no_wrap=True)
    made.add_column(overflow="fold")
    for name, text in rows:
        made.add_row(name, Text(text) if isinstance(text, str) else text)
    return made


def remedy(found: Json | None) -> Iterator[tuple[str, str | Text]]:
    if found:
        yield "next", f"{found['text']}:"
        yield "", Text(one_line(found["command"], LONGEST_TEXT), style="cyan")
