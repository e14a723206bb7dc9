"""How lists look in a terminal: runs, entries of journals, files. Each line stays one."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.show import LONGEST_RESULT, LONGEST_TEXT, WIDEST, fit, on_one_row, since, status
from agent_service.telling.plain import one_line

LONGEST_STATE = 13
FOR_PEOPLE = ("approval", "question")
WORDS = {"model_retry": "model retry", "time": "right time"}
"""What is waited for, where its name is not the word for it."""


def runs(page: Json, *, width: int) -> RenderableType:
    """A list of runs, for so many columns: what they do or came to is left out where it would not fit."""
    if not page["runs"]:
        return "no runs"
    wide = width >= WIDEST
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in ("run", "state", "accepted UTC"):
        table.add_column(column, no_wrap=True)
    for column in ("steps", "USD") if wide else ():
        table.add_column(column, no_wrap=True, justify="right")
    for column in ("goal", "now, or what it came to") if wide else ("goal",):
        table.add_column(column, ratio=1)
    for line in page["runs"]:
        table.add_row(*_of_a_line(fit(line), wide=wide))
    if page["next_cursor"]:
        return Group(table, Text(f"older ones: --cursor {page['next_cursor']}", style="dim"))
    return table


def _of_a_line(line: Json, *, wide: bool) -> Iterator[RenderableType]:
    yield line["run_id"]
    yield Text("! damaged", style="red") if line["damaged"] else status(line["state"])
    yield f"{line['accepted_at'][5:10]} {line['accepted_at'][11:16]}"
    if wide:
        yield from (str(line["steps"]), "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}")
    yield on_one_row(Text(one_line(line["goal"], LONGEST_RESULT)))
    if wide:
        yield on_one_row(_or_came_to(line))


def _or_came_to(line: Json) -> Text:
    waits = line["waiting_for"]
    if waits and waits["kind"] in FOR_PEOPLE:
        return Text(one_line(line["summary"], LONGEST_RESULT), style="yellow")
    if line["state"] == "running" and waits:
        what = f"tool {line['tool']}" if waits["kind"].startswith("tool") else WORDS.get(waits["kind"], waits["kind"])
        return Text(f"waits for the {what}, {since(waits)}", style="cyan")
    name = "" if line["class"] in ("", "completed", line["state"]) else f"{line['class']}: "
    return Text(one_line(f"{name}{line['summary']}", LONGEST_RESULT))


def event(told: Json) -> Text:
    """An entry of one run among those of all runs, on one line."""
    line, run = fit(told["entry"]), fit(told["run"])
    state = status(run["state"])
    state.pad_right(max(0, LONGEST_STATE - state.cell_len))
    at, said = f"{line['at'][11:19]}  ", one_line(line["summary"], LONGEST_TEXT)
    return Text.assemble((at, "dim"), run["run_id"], "  ", state, said)


def entry(line: Json) -> Text:
    """One journal entry on one line."""
    line = fit(line)
    return Text.assemble(
        (f"{line['seq']:>4} ", "dim"),
        (f"{line['at'][11:23]} ", "dim"),
        (f"{line['kind']:<17}", "bold"),
        one_line(line["summary"], LONGEST_TEXT),
    )


def files(listing: Json) -> RenderableType:
    """The files of a run's folder, with their sizes in bytes."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold")
    grid.add_column(style="dim", justify="right")
    for file in fit(listing["files"]):
        grid.add_row(file["path"], f"{file['size']:,}")
    return grid if listing["files"] else "its folder has no file yet"
