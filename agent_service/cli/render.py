"""Renders answers of the API for a terminal. They take JSON that is already escaped."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.history.text import ask_lines, duration, one_line
from schemas.status import counted

Row = tuple[str, str | Text]
SYMBOLS = {
    **dict.fromkeys(("done", "ok"), ("✓", "green")),
    **dict.fromkeys(("failed", "error", "damaged"), ("✗", "red")),
    **dict.fromkeys(("escalated", "refused"), ("!", "yellow")),
    **dict.fromkeys(("running", "open"), ("▶", "cyan")),
    "cancelled": ("∅", "magenta"),
    "queued": ("…", "dim"),
    "waiting": ("…", "yellow"),
    "paused": ("‖", "yellow"),
    "over": ("·", "dim"),
    "continuation": ("↻", "cyan"),
}
UNKNOWN = ("?", "")
instant = datetime.fromisoformat
LONGEST_TEXT, LONGEST_RESULT, LONGEST_GOAL = 600, 160, 50
STATUS_WIDTH = 13


def status(name: str, label: str = "", *, width: int = 0, style: str | None = None) -> Text:
    mark, colour = SYMBOLS.get(name, UNKNOWN)
    made = Text.assemble((f"{mark} ", colour), (label or name, colour if style is None else style))
    made.pad_right(max(0, width - made.cell_len))
    return made


def table(rows: Iterable[Row], names: str = "dim") -> Table:
    made = Table.grid(padding=(0, 1))
    made.add_column(style=names, no_wrap=True)
    made.add_column(overflow="fold")
    for name, text in rows:
        made.add_row(name, Text(text) if isinstance(text, str) else text)
    return made


def since(waits: Json) -> str:
    until = waits["until"]
    return f"for {ago(waits['since'])}" + (f", until {until[:10]} {until[11:19]} UTC" if until else "")


def ago(began: str) -> str:
    return duration(datetime.now(UTC) - instant(began))


def remedy(found: Json | None) -> Iterator[Row]:
    if found:
        yield "next", f"{found['text']}:"
        yield "", Text(one_line(found["command"], LONGEST_TEXT), style="cyan")


def with_class(name: str, text: str, *known: str) -> str:
    """Prefixes the text with its class, except a known one."""
    return one_line(text if name in ("", *known) else f"{name}: {text}", LONGEST_TEXT)


def runs(page: Json) -> RenderableType:
    """Two lines per run: its figures; its goal and result."""
    if not page["runs"]:
        return "no runs"
    columns = "{:<13}{:>5}{:>8} {:>8}"  # fits into 80
    lines = [Text(f"{'run':<32}{'status':<13}{columns.format('accepted UTC', 'steps', 'USD', 'took')}", style="bold")]
    for line in page["runs"]:
        child = "child: " if line["parent_run_id"] else ""
        goal = Text(f"  {child}{one_line(line['goal'], LONGEST_RESULT)}", style="dim")
        goal.truncate(LONGEST_GOAL, overflow="ellipsis")
        state = status("damaged" if line["damaged"] else line["status"], width=STATUS_WIDTH)
        lines.append(Text.assemble(f"{line['run_id']:<32}", state, columns.format(*_figures(line))))
        lines.append(Text.assemble(goal, "  → ", _result(line), no_wrap=True, overflow="ellipsis"))
    if page["next_cursor"]:
        lines.append(Text(f"older ones: --cursor {page['next_cursor']}", style="dim"))
    return Group(*lines)


def _figures(line: Json) -> tuple[str, str, str, str]:
    cost = "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}"
    took = (instant(line["ended_at"]) if line["ended_at"] else datetime.now(UTC)) - instant(line["accepted_at"])
    time = duration(took) if took.days < 4 else f"{took.days} d"
    return f"{line['accepted_at'][5:10]} {line['accepted_at'][11:16]}", str(line["steps"]), cost, time


WAITS = {
    "model_retry": "waits for the next try of the model",
    "tool_retry": "waits for the next try of the tool",
    "time": "sleeps",
}


def _result(line: Json) -> Text:
    waits = line["waiting_for"]
    if line["status"] == "running" and waits:
        tool = f" {line['tool']}" if waits["kind"].startswith("tool") else ""
        kind = WAITS.get(waits["kind"], f"waits for the {waits['kind']}")
        return Text(f"{kind}{tool}, {since(waits)}", style="cyan")
    return Text(with_class(line["class"], line["summary"], "completed", line["status"]))


def event(data: Json) -> Text:
    run, entry = data["run"], data["entry"]
    head = (f"{entry['at'][11:19]}  ", "dim"), run["run_id"], "  ", status(run["status"], width=STATUS_WIDTH)
    return Text.assemble(*head, one_line(entry["summary"], LONGEST_TEXT))


def entry(line: Json) -> Text:
    head = (f"{line['seq']:>4} {line['at'][11:23]} ", "dim"), (f"{line['kind']:<17}", "bold")
    return Text.assemble(*head, one_line(line["summary"], LONGEST_TEXT))


def files(listing: Json) -> RenderableType:
    found = table(((file["path"], f"{file['size']:>11,}") for file in listing["files"]), names="")
    return found if listing["files"] else "its folder has no file yet"


def call(view: Json) -> str:
    came = {name: view[name] for name in ("reply", "outcome")}
    about = {name: view[name] for name in ("run_id", "call", "with_plan", "prompt_note")}
    about |= {name: view["item"][name] for name in ("phase", "model", "status", "started_at", "ended_at", "error")}
    prompt = (f"\n── {role}\n{text}" for role in ("system", "user") for text in view["prompt"][role])
    return "\n".join((*_values(about), *prompt, "\n── reply", *_values(came)))


def details(view: Json) -> str:
    return "\n".join(_values(view))


STRUCTURAL_FIELDS = frozenset({"id", "entry", "kind", "text", "step", "parent", "depth", "repeats", "ended_in"})
"""Fields of an item that its place in the tree shows."""


def step(detail: Json) -> str:
    lines = [f"run_id: {detail['run_id']}", *_values({"executor": detail["executor"]})]
    for part in detail["parts"]:
        item = {name: value for name, value in part["item"].items() if name not in STRUCTURAL_FIELDS}
        indent = "  " * part["item"]["depth"]
        lines.append(f"{indent}{item.pop('title')}")
        lines += _values(item | part["about"] | {"result": part["result"]}, f"{indent}  ")
    return "\n".join(lines)


def _values(values: Json, indent: str = "") -> Iterator[str]:
    for name, value in values.items():
        label = f"{indent}{name}:"
        match value:
            case _ if value in (None, "", [], {}):
                continue
            case dict():
                yield from (label, *_values(value, f"{indent}  "))
            case list() if all(isinstance(part, dict) for part in value):
                for number, part in enumerate(value, start=1):
                    yield from (f"{indent}{name} {number}:", *_values(part, f"{indent}  "))
            case str() if "\n" in value:
                yield from (label, *(f"{indent}    {line}" for line in value.splitlines()))
            case str():
                yield f"{label} {value}"
            case _:
                yield f"{label} {json.dumps(value, ensure_ascii=False)}"


def inbox(view: Json) -> RenderableType:
    count, shown = view["total"], len(view["items"])
    lines: list[RenderableType] = [Text(f"{counted(count, 'things')} waiting for a person", style="bold")]
    for item in view["items"]:
        which, kind = item["run_id"], f"  {item['kind'].replace('_', ' ')}"
        if item["seq"] is not None:
            which, kind = f"dead letter {item['seq']}", ""
        mark = {"dead_letter": "failed", "escalated": "escalated", "in_doubt": "escalated"}.get(item["kind"], "paused")
        began = f" since {item['since'][5:10]} {item['since'][11:16]} UTC ({ago(item['since'])})"
        title = status(mark, which or " ", style="bold")
        rows = table((f"  {name}", text) for name, text in _card(item))
        lines += ["", Text.assemble(title, kind, (began, "dim")), rows]
    if count > shown:
        lines += ["", Text(f"and {count - shown} older ones: see --limit", style="dim")]
    if view["trouble"]:
        lines += ["", Text(f"! {view['trouble']}", style="yellow")]
    return Group(*lines)


def _card(item: Json) -> Iterator[Row]:
    yield "what" if item["seq"] is not None else "goal", one_line(item["title"], LONGEST_TEXT)
    why = ("why", with_class(item["class"], item["text"], item["kind"]))
    yield from (*(list(ask_lines(item.get("asks"))) or [why]), *remedy(item["remedy"]))


def why(view: Json) -> RenderableType:
    waits = view["waiting_for"]
    rows: list[Row] = [("verdict", Text(one_line(view["verdict"], LONGEST_TEXT), style="bold"))]
    rows += [("waits for", f"{waits['text']}, {since(waits)}")] if waits else []
    rows += [(fact["what"], one_line(fact["text"], LONGEST_TEXT)) for fact in view["facts"]]
    title = Text.assemble((view["run_id"], "bold"), "  ", status(view["status"]))
    return Group(title, table((*rows, *remedy(view["remedy"]))))


def letters(page: Json) -> RenderableType:
    """Two lines per letter: its subject; the reason it was refused."""
    lines: list[RenderableType] = [Text(f"{'id':>6}  {'when (UTC)':<20}subject", style="bold")]
    for letter in page["letters"]:
        settled, run = letter["settled"], f"  {letter['run_id']}" if letter["run_id"] else ""
        done = f"  {letter['status']} by {settled['by']}" if settled else ""
        when = f"{letter['at'][:10]} {letter['at'][11:19]}"
        lines.append(Text(f"{letter['id']:>6}  {when} {letter['subject']}{run}{done}"))
        lines.append(Padding(Text(one_line(letter["reason"], LONGEST_RESULT), style="dim"), (0, 0, 0, 8)))
    if page["next_cursor"]:
        lines.append(Text(f"newer ones: --cursor {page['next_cursor']}", style="dim"))
    return Group(*lines) if page["letters"] else "there are no dead letters"
