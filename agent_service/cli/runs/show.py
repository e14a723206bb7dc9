"""How a run looks in a terminal, drawn from the API's JSON. What others wrote is shown as text, never as markup."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.runs.drawing import (
    LONGEST_RESULT,
    LONGEST_TEXT,
    MARKS,
    UNKNOWN,
    ago,
    day_and_time,
    fit,
    named_rows,
    remedy,
    status,
)
from agent_service.cli.runs.rows import hanging, row
from agent_service.history.asked import asked
from agent_service.history.plain import duration, one_line

WIDEST = 110
MOST_ROWS = 40
"""Of what a run did; `agentic tail` tells all."""
WAITS = {"queued": "waits for its turn", "paused": "waits for a person"}


def run(view: Json, timeline: Json) -> RenderableType:
    """In a frame that says which run it is and how it stands."""
    view = fit(view)
    parts = (_head(view), _done_items(view), _history(view, fit(timeline)), _spent(view), _left(view))
    title = Text.assemble(view["run_id"], "  ", status(view["status"]))
    spaced = [line for part in parts if part is not None for line in ("", part)]
    colour = MARKS.get(view["status"], UNKNOWN)[1]
    return Constrain(Panel(Group(*spaced[1:]), title=title, title_align="left", border_style=colour), WIDEST)


def since(waits: Json) -> str:
    return f"for {ago(waits['since'])}" + (f", until {day_and_time(waits['until'])}" if waits["until"] else "")


def now(view: Json) -> Text:
    """A run that goes on, in a line."""
    done = [item["done"] for item in view["definition_of_done"]]
    proven = Text(f"{sum(done)} of {len(done)} done" if done else "nothing framed yet")
    return Text(" · ").join(filter(None, (_waits_for(view), proven, _spent(view))))


def _head(view: Json) -> Table:
    known = ("goal", one_line(view["goal"], LONGEST_TEXT)), ("now", _waits_for(view)), *_came_of_it(view)
    rows = (*known, *asked(view["asks"]), *remedy(view["remedy"]))
    return named_rows(((name, text) for name, text in rows if text), names="bold")


def stopped(view: Json) -> list[Text]:
    """Lines after the rows of a run that ended or pauses."""
    view = fit(view)
    told = (*asked(view["asks"]), *remedy(view["remedy"]), ("spent", _spent(view)))
    return [Text(f"{'':12}{name:<21}{text}") for name, text in told]


def _came_of_it(view: Json) -> Iterator[tuple[str, str]]:
    if view["outcome"]:
        yield "outcome", one_line(view["outcome"], LONGEST_TEXT)
    is_asked = any(asked(view["asks"]))
    if view["status"] != "done" and (view["reason"] or view["status"] == "paused") and not is_asked:
        name = "" if view["class"] in (view["status"], "") else f"{view['class']}: "
        yield "why", one_line(f"{name}{view['reason'] or view['summary']}", LONGEST_TEXT)


def _waits_for(view: Json) -> Text | None:
    waits = view["waiting_for"]
    how_long = f", {since(waits)}" if waits else ""
    if view["stopped"]:
        return Text(f"{one_line(view['stopped'], LONGEST_TEXT)}; `agentic go-on` lets it go on", style="yellow")
    if view["status"] in WAITS:
        return Text(f"{WAITS[view['status']]}{how_long}")
    if not waits:
        return None
    told = Text(f"waits for {one_line(waits['text'], LONGEST_TEXT)}{how_long}")
    for one in view["pendings"]:
        if one["present"] is False:
            told.append(f"; {one['executor']} does not answer: is it running?", style="yellow")
        if one["trouble"]:
            told.append(f"; its executor says: {one_line(one['trouble'], LONGEST_RESULT)}", style="yellow")
    return told


def _done_items(view: Json) -> Table | None:
    rows = [
        ("✓" if item["done"] else "·", Text.assemble(item["text"], (f"  {', '.join(item['evidence'])}", "dim")))
        for item in view["definition_of_done"]
    ]
    return named_rows(rows, names="green") if rows else None


def _history(view: Json, timeline: Json) -> Group | None:
    """The newest of what a run did, each item followed by its parts."""
    items, now = [item for item in timeline["items"] if not item["repeats"]], datetime.now(UTC)
    told: list[RenderableType] = []
    if len(items) > MOST_ROWS:
        told.append(Text(f"{len(items) - MOST_ROWS} earlier ones: agentic tail {view['run_id']}", style="dim"))
    for item in items[-MOST_ROWS:]:
        line = row(item, now)
        stderr = (item["execution"] or {}).get("stderr")
        if item["kind"] == "step" and item["error"] and stderr:
            line.append(f"\nstderr: {one_line(stderr, LONGEST_TEXT)}", style="dim")
        told.append(hanging(line))
    return Group(*told) if told else None


def _spent(view: Json) -> Text:
    """Of each budget, and in all."""
    usage, ended = view["usage"], view["ended_at"]
    calls = f"{usage['calls']} model call{'' if usage['calls'] == 1 else 's'}"
    by = f" ({', '.join(view['models'])})" if view["models"] else ""
    cached = f" ({usage['cache_read_tokens']:,} cached)" if usage["cache_read_tokens"] else ""
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    told = [*_budgets(view["budget"]), (f"{calls}{by}, {usage['tokens']:,} tokens{cached}, {cost}", "dim")]
    told += [(f"took {_between(view['accepted_at'], ended)}", "dim")] if ended else []
    return Text(" · ").join(Text(*part) for part in told)


def _budgets(budget: Json) -> Iterator[tuple[str, str]]:
    """Those that there are, each in a colour where it is nearly spent."""
    shown = (("steps", "{:,}", True), ("tokens", "{:,}", True), ("reframes", "{}", budget["reframes"]))
    for name, how, is_shown in (*shown, ("cost_usd", "{:.4f}", True)):
        used, limit = budget[name], budget[f"max_{name}"]
        if used is not None and limit is not None and is_shown:
            style = "red" if used >= limit else "yellow" if used >= 0.8 * limit else ""
            yield f"{name.removeprefix('cost_')} {how.format(used)} of {how.format(limit)}", style


def _between(began: str, ended: str) -> str:
    return duration(max(timedelta(), datetime.fromisoformat(ended) - datetime.fromisoformat(began)))


def _left(view: Json) -> Table | None:
    rows = [("asked for", f"by {view['parent_run_id']}")] if view["parent_run_id"] else []
    rows += [(f"step {child['step']}", f"run {child['run_id']}") for child in view["children"]]
    rows += [("artifact", path) for path in view["artifacts"]]
    rows += [("trace", view["trace_url"])] if view["trace_url"] else []
    return named_rows(rows, names="bold") if rows else None
