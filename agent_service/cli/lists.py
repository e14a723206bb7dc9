"""How lists look in a terminal: runs, entries of journals, files. Each line stays one."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.drawing import LONGEST_TEXT, fit, grid, status
from agent_service.cli.show import LONGEST_RESULT, WIDEST, on_one_row, since
from agent_service.telling.plain import duration, one_line

LONGEST_STATE = 13
FOR_PEOPLE = ("approval", "question")
WORDS = {"model_retry": "model retry", "time": "right time"}
"""What is waited for, where its name is not the word for it."""


def runs(page: Json, *, width: int) -> RenderableType:
    """A list of runs, for so many columns. In few, each has its goal on a line of its own."""
    if not page["runs"]:
        return "no runs"
    drawn = _in_columns if width >= WIDEST else _in_two_lines
    listed = drawn([fit(line) for line in page["runs"]])
    if page["next_cursor"]:
        return Group(listed, Text(f"older ones: --cursor {page['next_cursor']}", style="dim"))
    return listed


def _in_columns(lines: Sequence[Json]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in ("run", "status", "accepted UTC"):
        table.add_column(column, no_wrap=True)
    for column in ("steps", "USD", "took"):
        table.add_column(column, no_wrap=True, justify="right")
    for column in ("goal", "now, or outcome"):
        table.add_column(column, ratio=1)
    for line in lines:
        goal, now = Text(one_line(line["goal"], LONGEST_RESULT)), _or_came_to(line)
        table.add_row(line["run_id"], _state(line), *_figures(line), on_one_row(goal), on_one_row(now))
    return table


def _in_two_lines(lines: Sequence[Json]) -> RenderableType:
    columns = ("{:<32}", "{:<13}", "{:<13}", "{:>5}", "{:>9}", "{:>7}")
    named = ("run", "status", "accepted UTC", "steps", "USD", "took")
    head = Text("".join(map(str.format, columns, named)), style="bold")
    drawn: list[Text] = [head]
    for line in lines:
        state = _state(line)
        state.pad_right(LONGEST_STATE - state.cell_len)
        figures = "".join(map(str.format, columns[2:], _figures(line)))
        goal = Text(f"  {one_line(line['goal'], LONGEST_RESULT)}", style="dim")
        drawn += [Text.assemble(columns[0].format(line["run_id"]), state, figures), on_one_row(goal)]
    return Group(*drawn)


def _state(line: Json) -> Text:
    return Text("! damaged", style="red") if line["damaged"] else status(line["status"])


def _figures(line: Json) -> tuple[str, str, str, str]:
    """When it was accepted, its steps, what it cost, and how long it took, or takes by now."""
    end = datetime.fromisoformat(line["ended_at"]) if line["ended_at"] else datetime.now(UTC)
    cost = "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}"
    took = duration(end - datetime.fromisoformat(line["accepted_at"]))
    return f"{line['accepted_at'][5:10]} {line['accepted_at'][11:16]}", str(line["steps"]), cost, took


def _or_came_to(line: Json) -> Text:
    waits = line["waiting_for"]
    if waits and waits["kind"] in FOR_PEOPLE:
        return Text(one_line(line["summary"], LONGEST_RESULT), style="yellow")
    if line["status"] == "running" and waits:
        what = f"tool {line['tool']}" if waits["kind"].startswith("tool") else WORDS.get(waits["kind"], waits["kind"])
        return Text(f"waits for the {what}, {since(waits)}", style="cyan")
    name = "" if line["class"] in ("", "completed", line["status"]) else f"{line['class']}: "
    return Text(one_line(f"{name}{line['summary']}", LONGEST_RESULT))


def event(told: Json) -> Text:
    line, run = fit(told["entry"]), fit(told["run"])
    state = status(run["status"])
    state.pad_right(max(0, LONGEST_STATE - state.cell_len))
    at, said = f"{line['at'][11:19]}  ", one_line(line["summary"], LONGEST_TEXT)
    return Text.assemble((at, "dim"), run["run_id"], "  ", state, said)


def entry(line: Json) -> Text:
    line = fit(line)
    return Text.assemble(
        (f"{line['seq']:>4} ", "dim"),
        (f"{line['at'][11:23]} ", "dim"),
        (f"{line['kind']:<17}", "bold"),
        one_line(line["summary"], LONGEST_TEXT),
    )


def files(listing: Json) -> RenderableType:
    made = grid("", "dim")
    made.columns[1].justify = "right"
    for file in fit(listing["files"]):
        made.add_row(file["path"], f"{file['size']:,}")
    return made if listing["files"] else "its folder has no file yet"
