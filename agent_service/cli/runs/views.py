"""Views in a terminal: lists of runs, entries and files; a step or model call in full; the inbox; why a run waits."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.runs.drawing import (
    LONGEST_RESULT,
    LONGEST_TEXT,
    ago,
    fit,
    named_rows,
    remedy,
    status,
)
from agent_service.cli.runs.show import since
from agent_service.history.asked import asked
from agent_service.history.plain import duration, one_line
from groundwork.service.invisible import visible

LONGEST_STATE = 13
LONGEST_GOAL = 50
LONG = timedelta(hours=48)
"""From then on a list tells days: hours would not fit into its column."""


def runs(page: Json) -> RenderableType:
    """Two lines a run: its figures, and what it is for and came to."""
    if not page["runs"]:
        return "no runs"
    columns = "{:<32}{:<13}{:<13}{:>5}{:>9}{:>7}"
    told = [Text(columns.format("run", "status", "accepted UTC", "steps", "USD", "took"), style="bold")]
    for line in map(fit, page["runs"]):
        state = _state(line)
        state.pad_right(LONGEST_STATE - state.cell_len)
        goal = Text(f"  {one_line(line['goal'], LONGEST_RESULT)}", style="dim")
        goal.truncate(LONGEST_GOAL, overflow="ellipsis")
        told.append(Text.assemble(f"{line['run_id']:<32}", state, "{:<13}{:>5}{:>9}{:>7}".format(*_figures(line))))
        told.append(Text.assemble(goal, "  → ", _or_came_to(line), no_wrap=True, overflow="ellipsis"))
    if page["next_cursor"]:
        told.append(Text(f"older ones: --cursor {page['next_cursor']}", style="dim"))
    return Group(*told)


def _state(line: Json) -> Text:
    return Text("! damaged", style="red") if line["damaged"] else status(line["status"])


def _figures(line: Json) -> tuple[str, str, str, str]:
    end = datetime.fromisoformat(line["ended_at"]) if line["ended_at"] else datetime.now(UTC)
    cost = "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}"
    took = end - datetime.fromisoformat(line["accepted_at"])
    told = f"{took.days} d" if took >= LONG else duration(took)
    return f"{line['accepted_at'][5:10]} {line['accepted_at'][11:16]}", str(line["steps"]), cost, told


def _or_came_to(line: Json) -> Text:
    waits = line["waiting_for"]
    if line["status"] == "running" and waits:
        tool = f" {line['tool']}" if waits["kind"].startswith("tool") else ""
        return Text(f"waits for the {waits['kind'].replace('_', ' ')}{tool}, {since(waits)}", style="cyan")
    name = "" if line["class"] in ("", "completed", line["status"]) else f"{line['class']}: "
    return Text(one_line(f"{name}{line['summary']}", LONGEST_RESULT))


def event(told: Json) -> Text:
    run = fit(told["run"])
    state = status(run["status"])
    state.pad_right(max(0, LONGEST_STATE - state.cell_len))
    return Text.assemble((f"{told['entry']['at'][11:19]}  ", "dim"), run["run_id"], "  ", state, _said(told["entry"]))


def entry(line: Json) -> Text:
    head = (f"{line['seq']:>4} {line['at'][11:23]} ", "dim")
    return Text.assemble(head, (f"{line['kind']:<17}", "bold"), _said(line))


def _said(entry: Json) -> str:
    return one_line(entry["summary"], LONGEST_TEXT)


def files(listing: Json) -> RenderableType:
    found = named_rows(((file["path"], f"{file['size']:>11,}") for file in fit(listing["files"])), names="")
    return found if listing["files"] else "its folder has no file yet"


def step(detail: Json) -> str:
    return "\n".join(map(visible, _values(detail)))


def call(view: Json) -> str:
    came = {name: view[name] for name in ("reply", "outcome")}
    about = {name: value for name, value in view.items() if name not in ("prompt", *came)}
    prompt = (f"\n── {part['role']}\n{part['text']}" for part in view["prompt"])
    return "\n".join(map(visible, (*_values(about), *prompt, "\n── reply", *_values(came))))


def _values(told: Json, indent: str = "") -> Iterator[str]:
    """Each value below or beside its name, but for what is empty."""
    for name, value in told.items():
        label = f"{indent}{name}:"
        match value:
            case _ if value in (None, "", [], {}):
                continue
            case dict():
                yield from (label, *_values(value, f"{indent}  "))
            case [dict(), *_]:
                for number, part in enumerate(value, start=1):
                    yield from (f"{indent}{name} {number}:", *_values(part, f"{indent}  "))
            case str() if "\n" in value:
                yield from (label, *(f"{indent}    {line}" for line in value.splitlines()))
            case str():
                yield f"{label} {value}"
            case _:
                yield f"{label} {json.dumps(value, ensure_ascii=False)}"


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


def inbox(view: Json) -> RenderableType:
    view = fit(view)
    count, shown = view["total"], len(view["items"])
    heading = "1 thing waits" if count == 1 else f"{count} things wait" if count else "nothing waits"
    told: list[RenderableType] = [Text(f"{heading} for a person", style="bold")]
    for item in view["items"]:
        told += ["", _heading(item), named_rows((f"  {name}", text) for name, text in _of_an_item(item))]
    if count > shown:
        told += ["", Text(f"and {count - shown} older ones: see --limit", style="dim")]
    if view["trouble"]:
        told += ["", Text(f"! {view['trouble']}", style="yellow")]
    return Group(*told)


def _heading(item: Json) -> Text:
    which = item["run_id"] if item["seq"] is None else f"dead letter {item['seq']}"
    since = f" since {item['since'][5:10]} {item['since'][11:16]} UTC ({ago(item['since'])})"
    mark = {"dead_letter": "failed", "escalated": "escalated", "in_doubt": "escalated"}.get(item["kind"], "paused")
    title = status(mark, said=which or " ", style="bold")
    return Text.assemble(title, f"  {item['kind'].replace('_', ' ')}", (since, "dim"))


def _of_an_item(item: Json) -> Iterator[tuple[str, str | Text]]:
    yield "run" if item["seq"] is not None else "goal", one_line(item["title"], LONGEST_TEXT)
    if told := list(asked(item.get("asks"))):
        yield from told
    else:
        name = "" if item["class"] == item["kind"] else f"{item['class']}: "
        yield "why", f"{name}{one_line(item['text'], LONGEST_TEXT)}"
    yield from remedy(item["remedy"])
    first = 1 if item["remedy"] else 0
    for action in item["actions"][first:]:
        if action in COMMANDS:
            yield "or", COMMANDS[action].format(run_id=item["run_id"], seq=item["seq"])


def why(view: Json) -> RenderableType:
    view = fit(view)
    title = Text.assemble((view["run_id"], "bold"), "  ", status(view["status"]))
    return Group(title, named_rows(_why(view)))


def _why(view: Json) -> Iterator[tuple[str, str | Text]]:
    yield "verdict", Text(one_line(view["verdict"], LONGEST_TEXT), style="bold")
    if waits := view["waiting_for"]:
        yield "waits for", f"{waits['text']}, {since(waits)}"
    yield from ((fact["what"], one_line(fact["text"], LONGEST_TEXT)) for fact in view["facts"])
    yield from remedy(view["remedy"])
