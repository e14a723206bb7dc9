"""Rows of a run's timeline, and `NewRows`: those that are new while the run goes by."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.runs.drawing import MARKS, UNKNOWN
from agent_service.history.plain import duration, one_line

LONGEST_TEXT = 500
LONGEST_TITLE = 13
INDENT = 33
"""Columns of a row before its text."""
SAID_ONCE = frozenset({"accepted", "person", "wait", "ending"})
"""Items of these kinds have one row, when they begin."""


def row(item: Json, now: datetime, at: datetime | None = None) -> Text:
    """When it began, or `at`; its name, how long it took until it ended or `now`, what it said and what it cost."""
    began, status = datetime.fromisoformat(item["started_at"]), _status(item)
    ended = datetime.fromisoformat(item["ended_at"]) if item["ended_at"] else now
    took = "" if status == "open" or item["kind"] in ("person", "ending") else duration(max(timedelta(), ended - began))
    mark, colour = MARKS.get(status, UNKNOWN)
    title = Text.assemble((f"{mark} ", colour), (_name(item), "bold" if status in ("open", "error") else ""))
    title.pad_right(max(0, LONGEST_TITLE - title.cell_len))
    return Text.assemble(
        (f"{(at or began).astimezone(UTC):%H:%M:%S}  ", "dim"),
        title,
        (f"{took:>8}  ", "dim"),
        (one_line(_text(item), LONGEST_TEXT), colour if status == "error" else ""),
        (_spent(item), "dim"),
    )


def hanging(line: Text) -> RenderableType:
    """A row for a terminal: what does not fit goes on below, beneath what it is about."""
    grid = Table.grid()
    grid.add_column(width=INDENT, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(*line.divide([INDENT]))
    return grid


Look = Callable[[], Json]
"""Gives the newest timeline; raises NotDone while the agent is away."""


class NewRows:
    """New rows of a run after entry `after`. An item has one when it begins, and one when it ends."""

    def __init__(self, look: Look, after: int = 0) -> None:
        self._look = look
        self._shown = after

    def so_far(self, entry: Json) -> list[Text]:
        """Raises NotDone while the agent is away."""
        if entry["seq"] <= self._shown:
            return []
        items, now = self._look()["items"], datetime.now(UTC)
        new = sorted(self._new(items), key=lambda told: told[:3])
        self._shown = max((entry["seq"], *(max(item["entry"], item["ended_in"] or 0) for item in items)))
        return [row(item, now, at) for at, *_, item in new]

    def _new(self, items: list[Json]) -> Iterator[tuple[datetime, bool, int, Json]]:
        """By instant; then ends before beginnings, parts before wholes."""
        for item in items:
            is_over = (item["ended_in"] or 0) > self._shown and item["kind"] not in SAID_ONCE
            if (is_over or item["entry"] > self._shown) and not item["repeats"]:
                at = datetime.fromisoformat(item["ended_at" if is_over else "started_at"])
                yield at, not is_over, -item["depth"] * is_over, item


def _status(item: Json) -> str:
    match item["kind"]:
        case "accepted":
            return "ok"
        case "ending":
            return str(item["title"]).lower()
        case "wait" if item["ended_at"]:
            return "over"
    return str(item["status"])


def _name(item: Json) -> str:
    indent: str = " " * item["depth"]
    match item["kind"]:
        case "phase":
            return str(item["phase"])
        case "step":
            return f"step {item['step']}"
        case "task":
            return f"{indent}{item['task']}"
        case "attempt":
            return indent + (f"attempt {item['attempt']}" if ":attempt:" in item["id"] else "a result")
        case "ending":
            return _status(item)
    return "waits" if item["kind"] == "wait" else str(item["kind"])


def _text(item: Json) -> str:
    text, title, error = str(item["text"]), str(item["title"]), item["error"]
    match item["kind"]:
        case "step" | "task" if item["status"] in ("open", "waiting"):
            return title.partition(": ")[2] + (f": {text}" if item["kind"] == "task" and text else "")
        case "person" | "wait":
            text = ": ".join(filter(None, (title, text)))
    return f"{error['class']}: {text}" if error and error["class"] not in text else text


def _spent(item: Json) -> str:
    tokens, cost = item["tokens"], item["cost_usd"]
    count = tokens["input"] + tokens["output"] if tokens else 0
    told = [f"{count:,} tokens"] if count else []
    told += [f"{cost:.4f} USD"] if cost else []
    return f" ({', '.join(told)})" if told else ""
