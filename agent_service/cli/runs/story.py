"""The story of a run, told from its timeline: `rows` gives all of it, `Story` what is new while it goes by."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
"""Columns of a line before its text."""
NAMES = {"accepted": "accepted", "wait": "waits", "person": "person"}
TIMELESS = frozenset({"person", "ending"})
SAID_ONCE = frozenset({"accepted", "person", "wait", "ending"})
"""Kinds of items that say all there is to say when they begin."""

_REQUEST = re.compile(r"([Ss]tep \d+(, \S+ of round \d+)?( attempt \d+)?|\S+): ")
"""What a text begins with that names its step or its task."""


@dataclass(frozen=True, slots=True)
class Row:
    at: datetime
    took: timedelta | None
    name: str
    status: str
    text: str
    spent: str

    @property
    def took_words(self) -> str:
        return "" if self.took is None else duration(self.took)

    @property
    def time(self) -> str:
        return f"{self.at.astimezone(UTC):%H:%M:%S}"

    @property
    def title(self) -> Text:
        mark, colour = MARKS.get(self.status, UNKNOWN)
        return Text.assemble((f"{mark} ", colour), (self.name, "bold" if self.status in ("open", "error") else ""))

    @property
    def told(self) -> Text:
        colour = MARKS["error"][1] if self.status == "error" else ""
        return Text.assemble((self.text, colour), (f" ({self.spent})" if self.spent else "", "dim"))

    @property
    def line(self) -> Text:
        title = self.title
        title.pad_right(max(0, LONGEST_TITLE - title.cell_len))
        return Text.assemble(
            (f"{self.time}  ", "dim"),
            title,
            (f"{'' if self.status == 'open' else self.took_words:>8}  ", "dim"),
            self.told,
        )


def hanging(line: Text) -> RenderableType:
    """A line for a terminal: what does not fit goes on below, beneath what it is about."""
    grid = Table.grid()
    grid.add_column(width=INDENT, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(*line.divide([INDENT]))
    return grid


def rows(timeline: Json, now: datetime) -> list[Row]:
    """The whole timeline as it is `now`."""
    return [_row(item, now, _at(item["started_at"])) for item in timeline["items"] if not item["repeats"]]


def _repeated(timeline: Json) -> set[str]:
    """Attempts that say no more than their step or task: its first and last, unless that one asked for more first."""
    ends = {item["id"]: item["status"] for item in timeline["items"]}
    attempts = [item for item in timeline["items"] if item["kind"] == "attempt" and _is_asked_for(item)]
    attempts = [item for item in attempts if item["status"] != "continuation" or ends[item["parent"]] == "continuation"]
    newest: dict[str, str] = {item["parent"]: item["id"] for item in attempts}
    over = {item["id"] for item in timeline["items"] if item["ended_at"]}
    ended_with = {attempt for step, attempt in newest.items() if step in over}
    return ended_with | {item["id"] for item in attempts if item["attempt"] == 1 and item["id"] not in over}


def _is_asked_for(attempt: Json) -> bool:
    return ":attempt:" in attempt["id"]


def _at(instant: str) -> datetime:
    return datetime.fromisoformat(instant)


def _row(item: Json, now: datetime, at: datetime) -> Row:
    began = datetime.fromisoformat(item["started_at"])
    ended = datetime.fromisoformat(item["ended_at"]) if item["ended_at"] else now
    return Row(
        at=at,
        took=None if item["kind"] in TIMELESS else max(timedelta(), ended - began),
        name=_name(item),
        status=_status(item),
        text=one_line(_text(item), LONGEST_TEXT),
        spent=_spent(item),
    )


def _status(item: Json) -> str:
    if item["kind"] in ("accepted", "ending"):
        return "ok" if item["kind"] == "accepted" else _end(item)
    return "over" if item["kind"] == "wait" and item["ended_at"] else str(item["status"])


def _end(item: Json) -> str:
    return str(item["title"]).lower()


def _name(item: Json) -> str:
    match item["kind"]:
        case "phase":
            return str(item["phase"])
        case "step":
            return f"step {item['step']}"
        case "task":
            return f"{' ' * item['depth']}{item['task']}"
        case "attempt":
            return f"{' ' * item['depth']}" + (f"attempt {item['attempt']}" if _is_asked_for(item) else "a result")
        case "ending":
            return _end(item)
        case kind:
            return NAMES.get(kind, str(kind))


def _text(item: Json) -> str:
    if item["kind"] in ("step", "task", "attempt"):
        return _of_request(item)
    text = item["text"]
    if item["kind"] == "person" and item["title"] != "Message":
        text = f"{item['title'].lower()}, {text}"
    if item["kind"] == "wait":
        text = _waited(item)
    return _with_class(text, item["error"])


def _of_request(item: Json) -> str:
    asks = item["kind"] == "task" and item["status"] in ("open", "waiting", "cancelled")
    if asks or (item["kind"] == "step" and item["status"] in ("open", "waiting")):
        asked = _REQUEST.sub("", item["title"], count=1)
        return f"{asked}: {item['text']}" if asks and item["text"] else asked
    return _with_class(_REQUEST.sub("", item["text"], count=1), item["error"])


def _with_class(text: str, error: Json | None) -> str:
    return f"{error['class']}: {text}" if error and error["class"] not in text else text


def _waited(item: Json) -> str:
    if item["id"].startswith("pause:"):
        return f"{item['title']}: {item['text']}" if item["until"] else f"for a person: {item['text']}"
    return str(item["text"] or item["title"])


def _spent(item: Json) -> str:
    tokens, cost = item["tokens"], item["cost_usd"]
    count = tokens["input"] + tokens["output"] if tokens else 0
    told = [f"{count:,} tokens"] if count else []
    return ", ".join(told + ([f"{cost:.4f} USD"] if cost else []))


Look = Callable[[], Json]
"""Gives the newest timeline; raises NotDone while the agent is away."""


class Story:
    """New lines of a run after entry `after`. An item is told when it begins and when it is over."""

    def __init__(self, look: Look, after: int = 0) -> None:
        self._look = look
        self._after = after
        self._stages: dict[str, str] = {}
        """How far each item was told."""
        self._told = 0
        """The last entry that the newest timeline is known to tell of."""

    def so_far(self, entry: Json) -> list[Row]:
        """Raises NotDone while the agent is away."""
        if entry["seq"] <= self._told:
            return []
        timeline = self._look()
        if not self._told:
            self._stages = dict(_seen(timeline, self._after, datetime.fromisoformat(entry["at"])))
        self._told = max((entry["seq"], *(item["entry"] for item in timeline["items"])))
        new = sorted(self._new(timeline), key=lambda told: told[:3])
        return [_row(item, datetime.now(UTC), at) for at, *_, item in new]

    def _new(self, timeline: Json) -> Iterator[tuple[datetime, bool, int, Json]]:
        """What was not told yet, by instant; then ends before beginnings, parts before wholes."""
        repeated = _repeated(timeline)
        for item in timeline["items"]:
            stage = _stage(item)
            if self._stages.get(item["id"]) != stage and item["id"] not in repeated:
                is_over = stage == "over"
                at = _at(item["ended_at" if is_over else "started_at"])
                yield at, not is_over, -item["depth"] * is_over, item
            self._stages[item["id"]] = stage


def _seen(timeline: Json, after: int, at: datetime) -> Iterator[tuple[str, str]]:
    """How far the items were that began by entry `after`, when the one of `at` came."""
    for item in timeline["items"]:
        if item["entry"] <= after:
            going_on = item["ended_at"] is None or datetime.fromisoformat(item["ended_at"]) >= at
            yield item["id"], "begun" if going_on and item["kind"] not in SAID_ONCE else _stage(item)


def _stage(item: Json) -> str:
    """How far an item is, as far as it is told."""
    if item["kind"] in SAID_ONCE:
        return "said"
    return "over" if item["ended_at"] else "begun"
