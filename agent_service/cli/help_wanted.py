"""What a person is told who is needed: the inbox, and why one run waits or stopped, each with the commands to type."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.drawing import LONGEST_TEXT, ago, asked, day_and_time, fit, named_rows, remedy, status
from agent_service.telling.plain import one_line

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
