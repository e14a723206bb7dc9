"""What a person is told who is needed: the inbox, and why one run waits or stopped, each with the commands to type."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service.cli import asked
from agent_service.cli.client import Json
from agent_service.cli.marks import MARKS, UNKNOWN
from agent_service.cli.show import fit, status
from agent_service.telling.plain import duration, one_line

LONGEST_TEXT = 600
COMMANDS = {
    "approve": "agentic approve {run_id}",
    "reject": "agentic reject {run_id}",
    "answer": "agentic answer {run_id} 'TEXT'",
    "resume": "agentic signal {run_id} resume",
    "cancel": "agentic cancel {run_id}",
    "dismiss": "agentic dismiss {run_id}",
    "retry": "agentic dlq retry {seq}",
    "discard": "agentic dlq drop {seq}",
}
"""By action; the others are worded with the run's own remedy."""
MARK_OF = {
    "approval": "paused",
    "question": "paused",
    "paused": "paused",
    "in_doubt": "escalated",
    "escalated": "escalated",
    "dead_letter": "failed",
}


def inbox(view: Json) -> RenderableType:
    """Everything that waits for a person, newest first, each with what can be done about it."""
    view = fit(view)
    count, shown = view["total"], len(view["items"])
    heading = "1 thing waits" if count == 1 else f"{count} things wait" if count else "nothing waits"
    told: list[RenderableType] = [Text(f"{heading} for a person", style="bold")]
    for item in view["items"]:
        told += ["", _card(item)]
    if count > shown:
        told += ["", Text(f"and {count - shown} older ones: see --limit", style="dim")]
    if view["trouble"]:
        told += ["", Text(f"! {view['trouble']}", style="yellow")]
    return Group(*told)


def _card(item: Json) -> RenderableType:
    mark, colour = MARKS.get(MARK_OF.get(item["kind"], ""), UNKNOWN)
    which = item["run_id"] if item["seq"] is None else f"dead letter {item['seq']}"
    title = Text.assemble((f"{mark} ", colour), (which or "", "bold"), f"  {item['kind'].replace('_', ' ')}")
    since = Text(f" since {item['since'][5:10]} {item['since'][11:16]} UTC ({_ago(item['since'])})", style="dim")
    grid = _grid()
    for name, text in _of_an_item(item):
        grid.add_row(f"  {name}", Text(text, style="" if name else "cyan"))
    return Group(title + since, grid)


def _of_an_item(item: Json) -> Iterator[tuple[str, str]]:
    """The rows of a card, by their names; a command has none."""
    yield "run" if item["seq"] is not None else "goal", one_line(item["title"], LONGEST_TEXT)
    if told := list(asked.rows(item.get("asks"))):
        yield from told
    else:
        name = "" if item["class"] == item["kind"] else f"{item['class']}: "
        yield "why", f"{name}{one_line(item['text'], LONGEST_TEXT)}"
    yield from _remedy(item["remedy"])
    first = 1 if item["remedy"] else 0
    for action in item["actions"][first:]:
        if action in COMMANDS:
            yield "or", COMMANDS[action].format(run_id=item["run_id"], seq=item["seq"])


def why(view: Json) -> RenderableType:
    """What a run waits for or why it stopped, what is known of it, and what to do."""
    view, grid = fit(view), _grid()
    grid.add_row("verdict", Text(one_line(view["verdict"], LONGEST_TEXT), style="bold"))
    waits = view["waiting_for"]
    if waits:
        until = f", until {_at(waits['until'])}" if waits["until"] else ""
        what = waits["what"] or waits["kind"].replace("_", " ")
        grid.add_row("waits for", f"{what}, since {_at(waits['since'])} ({_ago(waits['since'])}){until}")
    for fact in view["facts"]:
        grid.add_row(fact["what"], Text(one_line(fact["text"], LONGEST_TEXT)))
    for name, text in _remedy(view["remedy"]):
        grid.add_row(name, Text(text, style="" if name else "cyan"))
    return Group(Text.assemble((view["run_id"], "bold"), "  ", status(view["status"])), grid)


def _remedy(remedy: Json | None) -> Iterator[tuple[str, str]]:
    if remedy:
        yield "next", f"{remedy['text']}:"
        yield "", one_line(remedy["command"], LONGEST_TEXT)


def _grid() -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _at(instant: str) -> str:
    return f"{instant[:10]} {instant[11:19]} UTC"


def _ago(instant: str) -> str:
    return duration(datetime.now(UTC) - datetime.fromisoformat(instant))
