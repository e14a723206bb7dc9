"""How runs look in a terminal, drawn from the API's JSON. What others wrote is shown as text, never as markup."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agent_service.cli.client import Json
from agent_service.cli.runs import story
from agent_service.cli.runs.drawing import (
    LONGEST_TEXT,
    MARKS,
    UNKNOWN,
    ago,
    asked,
    at,
    fit,
    grid,
    named_rows,
    remedy,
    status,
)
from agent_service.cli.runs.story import Row
from agent_service.history.plain import duration, one_line

WIDEST = 110
LONGEST_RESULT = 160
MOST_ROWS = 40
"""Of what a run did; `agentic tail` tells all."""
WAITS = {"queued": "waits for its turn", "paused": "waits for a person"}


def run(view: Json, timeline: Json) -> RenderableType:
    view, rows = fit(view), story.rows(fit(timeline), datetime.now(UTC))
    return framed(view, head(view, waits_for(view)), done_items(view), history(view, rows), spent(view), left(view))


def since(waits: Json) -> str:
    return f"for {ago(waits['since'])}" + (f", until {at(waits['until'])}" if waits["until"] else "")


def on_one_row(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def framed(view: Json, *parts: RenderableType | None) -> RenderableType:
    """The parts that there are, one below the other, in a frame that says which run it is and its state."""
    title = Text.assemble(view["run_id"], "  ", status(view["status"]))
    spaced = [line for part in parts if part is not None for line in ("", part)]
    frame = Panel(
        Group(*spaced[1:]), title=title, title_align="left", border_style=MARKS.get(view["status"], UNKNOWN)[1]
    )
    return Constrain(frame, WIDEST)


def head(view: Json, now: RenderableType | None) -> Table:
    grid = named_rows([("goal", one_line(view["goal"], LONGEST_TEXT))], names="bold")
    if now is not None:
        grid.add_row("now", now)
    for name, text in (*_came_of_it(view), *asked(view["asks"]), *remedy(view["remedy"])):
        grid.add_row(name, Text(text) if isinstance(text, str) else text)
    return grid


def stopped(view: Json) -> list[Text]:
    view = fit(view)
    told = [*asked(view["asks"]), *remedy(view["remedy"])]
    return [Text(f"{'':12}{name:<21}{text}") for name, text in told] + [
        Text(f"{'':12}{'spent':<21}{_totals(view)}", style="dim")
    ]


def _came_of_it(view: Json) -> Iterator[tuple[str, str]]:
    if view["outcome"]:
        yield "outcome", one_line(view["outcome"], LONGEST_TEXT)
    if view["status"] == "running" and not view["pending"]:
        yield "so far", one_line(view["summary"], LONGEST_TEXT)
    is_asked = any(asked(view["asks"]))
    if view["status"] != "done" and (view["reason"] or view["status"] == "paused") and not is_asked:
        name = "" if view["class"] in (view["status"], "") else f"{view['class']}: "
        yield "why", one_line(f"{name}{view['reason'] or view['summary']}", LONGEST_TEXT)


def waits_for(view: Json) -> Text | None:
    asking, waits = view["asking"], view["waiting_for"]
    how_long = f", {since(waits)}" if waits else ""
    if view["stopped"]:
        return Text(f"{one_line(view['stopped'], LONGEST_TEXT)}; `agentic go-on` lets it go on", style="yellow")
    if view["status"] in WAITS:
        return Text(f"{WAITS[view['status']]}{how_long}")
    if view["pendings"]:
        return Text("\n").join(map(_waits_for_a_tool, view["pendings"]))
    if asking and waits and waits["kind"] == "budget":
        return Text(f"{one_line(view['summary'], LONGEST_TEXT)}; it goes on at {at(waits['until'])}", style="yellow")
    if asking:
        again = f", again at {at(asking['retry_at'])}" if asking["retry_at"] else how_long
        return Text(f"the model is to {asking['phase']} (call {asking['call']}){again}")
    return Text(f"nothing is to be done for now{how_long}") if waits and waits["kind"] == "time" else None


def _waits_for_a_tool(pending: Json) -> Text:
    task = f", {pending['task']} of round {pending['round']}" if pending["task"] else ""
    what = f"step {pending['step']}{task}, {pending['tool']} {pending['command']}"
    attempt = f", attempt {pending['attempt']}" if pending["attempt"] > 1 else ""
    if pending["retry_at"]:
        return Text(f"next try of {what}{attempt} at {at(pending['retry_at'])}")
    whom = f"{pending['executor'] or 'whoever takes them'} (route {pending['route']})"
    since, until = (pending[name][11:19] for name in ("requested_at", "deadline_at"))
    asked = f": asked of {whom} at {since}, given up at {until} UTC"
    absent = f"; {pending['executor']} does not answer: is it running?" if pending["present"] is False else ""
    absent += f"; it says: {one_line(pending['trouble'], LONGEST_RESULT)}" if pending["trouble"] else ""
    return Text.assemble(what, attempt, (asked, "dim"), (absent, "yellow"))


def done_items(view: Json) -> Table | None:
    if not view["definition_of_done"]:
        return None
    made = grid("", "", "dim")
    for item in view["definition_of_done"]:
        mark = Text("✓", style="green") if item["done"] else Text("·", style="dim")
        made.add_row(mark, Text(item["text"], style="" if item["done"] else "dim"), Text(", ".join(item["evidence"])))
    return made


def history(view: Json, rows: Sequence[Row], *, most: int = MOST_ROWS, whole: bool = True) -> Table:
    """The newest of what a run did, each item when it began; where not `whole`, on one row each."""
    made = grid("dim", "dim", "", "")
    made.columns[1].justify = "right"
    for column in made.columns[:3]:
        column.no_wrap = True
    if len(rows) > most:
        made.add_row("", "", "", Text(f"{len(rows) - most} earlier ones: agentic tail {view['run_id']}", style="dim"))
    steps = {f"step {step['step']}": step for step in view["steps"]}
    for row in rows[-most:]:
        told = _with_stderr(row, steps.get(row.name)) if whole else on_one_row(row.told)
        made.add_row(row.time, row.took_words, row.title, told)
    return made


def _with_stderr(row: Row, step: Json | None) -> Text:
    stderr = ((step or {}).get("execution") or {}).get("stderr") if row.status == "error" else None
    words = f"\nstderr: {one_line(stderr, LONGEST_TEXT)}" if stderr else ""
    return Text.assemble(row.told, (words, "dim"))


def spent(view: Json, now: datetime | None = None) -> Group:
    made = grid("", "", "")
    for name, used, limit, words in _budgets(view, now):
        made.add_row(name, _bar(used, limit), words)
    return Group(made, Text(_totals(view), style="dim"))


def _totals(view: Json) -> str:
    usage = view["usage"]
    calls = f"{usage['calls']} model call{'' if usage['calls'] == 1 else 's'}"
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    by = f" ({', '.join(view['models'])})" if view["models"] else ""
    tokens = f"{usage['tokens']:,} tokens"
    if usage.get("cache_read_tokens"):
        tokens += f" ({usage['cache_read_tokens']:,} cached)"
    return f"{_duration(view)}{calls}{by}, {tokens}, {cost}"


def left(view: Json) -> Table | None:
    rows = [("asked for", f"by {view['parent_run_id']}")] if view["parent_run_id"] else []
    rows += [(f"step {child['step']}", f"run {child['run_id']}") for child in view["children"]]
    rows += [("artifact", path) for path in view["artifacts"]]
    rows += [("trace", view["trace_url"])] if view["trace_url"] else []
    if not rows:
        return None
    return named_rows(rows, names="bold")


def _budgets(view: Json, now: datetime | None) -> Iterator[tuple[str, float, float, str]]:
    budget = view["budget"]
    yield "steps", budget["steps"], budget["max_steps"], f"{budget['steps']} of {budget['max_steps']}"
    tokens, max_tokens = budget["tokens"], budget["max_tokens"]
    if max_tokens is not None:
        yield "tokens", tokens, max_tokens, f"{tokens:,} of {max_tokens:,}"
    cost, max_cost = budget["cost_usd"], budget["max_cost_usd"]
    if cost is not None and max_cost is not None:
        yield "cost", cost, max_cost, f"{cost:.4f} of {max_cost:.2f} USD"
    reframes, max_reframes = budget["reframes"], budget["max_reframes"]
    if reframes:
        yield "reframes", reframes, max_reframes, f"{reframes} of {max_reframes}"
    if now is not None and not view["ended_at"]:
        accepted, deadline = datetime.fromisoformat(view["accepted_at"]), datetime.fromisoformat(budget["deadline_at"])
        used, limit = max(timedelta(), now - accepted), deadline - accepted
        yield "time", used.total_seconds(), limit.total_seconds(), f"{duration(used)} of {duration(limit)}"


def _bar(used: float, limit: float) -> ProgressBar:
    style = "red" if used >= limit else "yellow" if used >= 0.8 * limit else "cyan"
    return ProgressBar(total=limit, completed=used, width=24, complete_style=style, finished_style=style)


def _duration(view: Json) -> str:
    if not view["ended_at"]:
        return ""
    ended, accepted = (datetime.fromisoformat(view[name]) for name in ("ended_at", "accepted_at"))
    return f"took {duration(ended - accepted)}, "
