"""Views in a terminal: lists of runs, entries and files; a step or model call in full; the inbox; why a run waits."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.runs.drawing import (
    LONGEST_TEXT,
    MARKS,
    UNKNOWN,
    ago,
    asked,
    day_and_time,
    fit,
    grid,
    named_rows,
    remedy,
    status,
)
from agent_service.cli.runs.show import LONGEST_RESULT, WIDEST, on_one_row, since
from agent_service.history.plain import duration, one_line
from groundwork.service.invisible import visible

LONGEST_STATE = 13
LONG = timedelta(hours=48)
"""From then on a list tells days: hours would not fit into its column."""
FOR_PEOPLE = ("approval", "question")
WORDS = {"model_retry": "model retry", "time": "right time"}
"""What is waited for, where its name is not the word for it."""


def runs(page: Json, *, width: int) -> RenderableType:
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
    end = datetime.fromisoformat(line["ended_at"]) if line["ended_at"] else datetime.now(UTC)
    cost = "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}"
    took = end - datetime.fromisoformat(line["accepted_at"])
    told = f"{took.days} d" if took >= LONG else duration(took)
    return f"{line['accepted_at'][5:10]} {line['accepted_at'][11:16]}", str(line["steps"]), cost, told


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


def step(detail: Json) -> str:
    return "\n".join(map(visible, _step(detail)))


def call(view: Json) -> str:
    return "\n".join(map(visible, _call(view)))


def _step(detail: Json) -> Iterator[str]:
    yield f"step {detail['step']} of {detail['run_id']}: {detail['tool']} {detail['command']}"
    yield f"  asked of   {detail['executor'] or 'whoever takes them'} (route {detail['route']})"
    for name, text in (("why", detail["rationale"]), ("expected", detail["expected"]), ("risk", detail["risk"])):
        if text:
            yield f"  {name:<10} {text}"
    if detail["child_run_id"]:
        yield f"  run        {detail['child_run_id']}"
    yield "\n── arguments"
    yield from _values(detail["arguments"])
    yield from _attempts("attempt", detail["attempts"])
    for task in detail["tasks"]:
        yield from _task(task)


def _task(task: Json) -> Iterator[str]:
    mark, _ = MARKS.get(task["status"], UNKNOWN)
    name = f"{task['id']} of round {task['round']}"
    yield f"\n── {name}: {mark} {task['status']}, {task['tool']} {task['command']}"
    told = (("asks", task["query"]), ("why", task["reason"]), ("after", ", ".join(task["depends_on"])))
    for name_of, text in (*told, ("allowed by", task["approved_by"]), ("run", task["child_run_id"])):
        if text:
            yield f"  {name_of:<10} {text}"
    if task["error"] and not task["attempts"]:
        yield f"{task['error']['class']}: {task['error']['message']}"
    yield from _values(task["arguments"])
    yield from _attempts(f"{name}, attempt", task["attempts"])


def _attempts(name: str, attempts: Iterable[Json]) -> Iterator[str]:
    for attempt in attempts:
        yield f"\n── {name} {attempt['attempt']}: {_attempt(attempt)}"
        if attempt["error"]:
            again = "may be tried again" if attempt["error"]["retryable"] else "is not tried again"
            yield f"{attempt['error']['class']}: {attempt['error']['message']} ({again})"
        yield from _values(attempt["result"] or {})


def _attempt(attempt: Json) -> str:
    mark, _ = MARKS.get(attempt["status"], UNKNOWN)
    asked, done = attempt["requested_at"], attempt["completed_at"]
    told = [
        f"{mark} {attempt['status']}",
        f"asked {day_and_time(asked)}" if asked else "not asked yet",
        f"answered {day_and_time(done)}{_after(asked, done)}" if done else "",
        f"to be answered by {day_and_time(attempt['deadline_at'])}" if asked and attempt["status"] == "open" else "",
        attempt["execution"] or "",
    ]
    return ", ".join(filter(None, told))


def _call(view: Json) -> Iterator[str]:
    along = " with the next plan" if view["with_plan"] and view["phase"] != "plan" else ""
    yield f"call {view['call']} of {view['run_id']}: {view['phase']}{along}"
    yield f"  model      {view['model'] or 'not known'}"
    replied = view["replied_at"]
    answered = f", replied {day_and_time(replied)}{_after(view['asked_at'], replied)}" if replied else ", no reply"
    yield f"  asked      {day_and_time(view['asked_at'])}{answered}"
    if view["usage"]:
        yield f"  spent      {_usage(view['usage'])}"
    if view["prompt_note"]:
        yield f"  note       {view['prompt_note']}"
    for part in view["prompt"]:
        yield f"\n── {part['role']}\n{part['text']}"
    yield "\n── reply"
    yield json.dumps(view["reply"], indent=2, ensure_ascii=False) if view["reply"] else "none"
    yield f"\n── outcome\n{view['outcome']}"


def _usage(usage: Json) -> str:
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    cached = f" ({usage['cache_read_tokens']:,} from the cache)" if usage["cache_read_tokens"] else ""
    return f"{usage['input_tokens']:,} tokens in{cached}, {usage['output_tokens']:,} out, {cost}"


def _values(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{name}:"
            yield from (f"    {line}" for line in value.splitlines())
        else:
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)}"


def _after(began: str | None, ended: str) -> str:
    if began is None:
        return ""
    return f" (after {duration(datetime.fromisoformat(ended) - datetime.fromisoformat(began))})"


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
    title = status(MARK_OF.get(item["kind"], ""), said=which or " ", style="bold")
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
        until = f", until {day_and_time(waits['until'])}" if waits["until"] else ""
        what = waits["what"] or waits["kind"].replace("_", " ")
        yield "waits for", f"{what}, since {day_and_time(waits['since'])} ({ago(waits['since'])}){until}"
    yield from ((fact["what"], one_line(fact["text"], LONGEST_TEXT)) for fact in view["facts"])
    yield from remedy(view["remedy"])
