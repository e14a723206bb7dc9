"""Displays one run in a terminal: as a panel, as a status line, and row by row until it ends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent_service.cli import output, render
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.output import Output, safe
from agent_service.history.text import ask_lines, duration, one_line
from groundwork.service.errors import Exit, NotDone
from schemas.status import counted
from schemas.values import dataclass

WIDEST, MOST_ROWS, INDENT = 110, 40, 33
"""Columns of the panel; rows of the timeline in it; columns of a row before its text."""
WAITING_TEXT = {"queued": "waits for its turn", "paused": "waits for a person"}
SINGLE_ROW_KINDS = frozenset({"accepted", "person", "wait", "ending"})
"""Kinds of items that have a row only when they begin."""


def run_panel(view: Json, timeline: Json | None = None) -> RenderableType:
    """Without `timeline` for a reader who has its rows already."""
    done = [
        ("✓" if item["done"] else "·", Text.assemble(item["text"], (f"  {', '.join(item['evidence'])}", "dim")))
        for item in view["definition_of_done"]
    ]
    tables = (
        render.table(_head(view), "bold"),
        render.table(done, "green"),
        _activity(view, timeline) if timeline else Text(),
        _spending(view),
        _links(view),
    )
    parts = [part for part in tables if not isinstance(part, Table) or part.row_count]
    spaced = [line for part in parts if part for line in ("", part)]
    title = Text.assemble(view["run_id"], "  ", render.status(view["status"]))
    colour = render.SYMBOLS.get(view["status"], render.UNKNOWN)[1]
    return Constrain(Panel(Group(*spaced[1:]), title=title, title_align="left", border_style=colour), WIDEST)


def _head(view: Json) -> Iterator[render.Row]:
    yield "goal", one_line(view["goal"], render.LONGEST_TEXT)
    if waits := _waiting(view):
        yield "now", waits
    if view["outcome"]:
        yield "outcome", one_line(view["outcome"], render.LONGEST_TEXT)
    asks = list(ask_lines(view["asks"]))
    if not asks and view["status"] != "done" and (view["reason"] or view["status"] == "paused"):
        yield "why", render.with_class(view["class"], view["reason"] or view["summary"], view["status"])
    yield from (*asks, *render.remedy(view["remedy"]))


def closing_lines(view: Json) -> list[Text]:
    """Lines that follow the rows of a run that ended or pauses."""
    rows = (*ask_lines(view["asks"]), *render.remedy(view["remedy"]), ("spent", _spending(view)))
    return [Text(f"{'':12}{name:<21}{text}") for name, text in rows]


def _waiting(view: Json) -> Text | None:
    waits = view["waiting_for"]
    how_long = f", {render.since(waits)}" if waits else ""
    if view["stopped"]:
        return Text(f"{one_line(view['stopped'], render.LONGEST_TEXT)}; `agentic go-on` lets it go on", style="yellow")
    if view["status"] in WAITING_TEXT:
        return Text(f"{WAITING_TEXT[view['status']]}{how_long}")
    if not waits:
        return None
    text = Text(f"waits for {one_line(waits['text'], render.LONGEST_TEXT)}{how_long}")
    for one in view["pendings"]:
        if one["present"] is False:
            text.append(f"; {one['executor']} does not answer: is it running?", style="yellow")
        if one["trouble"]:
            text.append(f"; its executor says: {one_line(one['trouble'], render.LONGEST_RESULT)}", style="yellow")
    return text


def _activity(view: Json, timeline: Json) -> Table:
    items, now = [item for item in timeline["items"] if not item["repeats"]], datetime.now(UTC)
    lines = list[Text]()
    if len(items) > MOST_ROWS:
        earlier = Text(f"{len(items) - MOST_ROWS} earlier ones: agentic tail {view['run_id']}", style="dim")
        lines.append(Text(" " * INDENT) + earlier)
    for item in items[-MOST_ROWS:]:
        line = timeline_row(item, now)
        stderr = (item["execution"] or {}).get("stderr")
        if item["kind"] == "step" and item["error"] and stderr:
            line.append(f"\nstderr: {one_line(stderr, render.LONGEST_TEXT)}", style="dim")
        lines.append(line)
    return output.hanging(INDENT, *lines)


def _spending(view: Json) -> Text:
    usage, budget, ended, parts = view["usage"], view["budget"], view["ended_at"], list[str]()
    for name, how in (("steps", "{:,}"), ("tokens", "{:,}"), ("reframes", "{}"), ("cost_usd", "{:.4f}")):
        used, limit = budget[name], budget[f"max_{name}"]
        used = None if used is None else used + (budget.get(f"lost_{name}") or 0)
        if used is not None and limit is not None and (used or name != "reframes"):
            parts.append(f"{name.removeprefix('cost_')} {how.format(used)} of {how.format(limit)}")
    by = f" ({', '.join(view['models'])})" if view["models"] else ""
    cached = f" ({usage['cache_read_tokens']:,} cached)" if usage["cache_read_tokens"] else ""
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    lost = f", {usage['lost_calls']} perhaps lost ({usage['lost_tokens']:,} tokens)" if usage["lost_calls"] else ""
    parts.append(f"{counted(usage['calls'], 'model calls')}{by}, {usage['tokens']:,} tokens{cached}, {cost}{lost}")
    parts += [f"took {duration(render.instant(ended) - render.instant(view['accepted_at']))}"] if ended else []
    return Text(" · ".join(parts))


def _links(view: Json) -> Table:
    rows = [("asked for", f"by {view['parent_run_id']}")] if view["parent_run_id"] else []
    rows += [(f"step {child['step']}", f"run {child['run_id']}") for child in view["children"]]
    rows += [("artifact", path) for path in view["artifacts"]]
    rows += [("trace", view["trace_url"])] if view["trace_url"] else []
    return render.table(rows, names="bold")


def timeline_row(item: Json, now: datetime, shown_at: datetime | None = None) -> Text:
    """A timeline item: time (`shown_at`, else its begin), name, duration until its end or `now`, text, and cost."""
    kind, began = item["kind"], render.instant(item["started_at"])
    state = "over" if kind == "wait" and item["ended_at"] else item["status"]
    state = str({"accepted": "ok", "ending": item["title"].lower()}.get(kind, state))
    ended = render.instant(item["ended_at"]) if item["ended_at"] else now
    took = "" if state == "open" or kind in ("person", "ending") else duration(max(timedelta(), ended - began))
    mark, colour = render.SYMBOLS.get(state, render.UNKNOWN)
    title = Text.assemble((f"{mark} ", colour), (_name(item, state), "bold" if state in ("open", "error") else ""))
    title.pad_right(max(0, render.STATUS_WIDTH - title.cell_len))
    usage = item["usage"] or {}
    count, cost = usage.get("input_tokens", 0) + usage.get("output_tokens", 0), usage.get("cost_usd")
    spent = ", ".join([f"{count:,} tokens"] * bool(count) + ([f"{cost:.4f} USD"] if cost else []))
    return Text.assemble(
        (f"{(shown_at or began).astimezone(UTC):%H:%M:%S}  ", "dim"),
        title,
        (f"{took:>8}  ", "dim"),
        (one_line(_text(item), render.LONGEST_TEXT), colour if state == "error" else ""),
        (f" ({spent})" if spent else "", "dim"),
    )


def _name(item: Json, state: str) -> str:
    indent, attempt = " " * item["depth"], f"attempt {item['attempt']}" if ":attempt:" in item["id"] else "a result"
    names = {"phase": item["phase"], "step": f"step {item['step']}", "task": f"{indent}{item['task']}", "wait": "waits"}
    return str({**names, "attempt": indent + attempt, "ending": state}.get(item["kind"], item["kind"]))


def _text(item: Json) -> str:
    kind, text, title, error = item["kind"], item["text"], item["title"], item["error"]
    if kind in ("step", "task") and item["status"] in ("open", "waiting"):
        return str(title.partition(": ")[2] + (f": {text}" if kind == "task" and text else ""))
    text = ": ".join(filter(None, (title, text))) if kind in ("person", "wait") else text
    return f"{error['class']}: {text}" if error and error["class"] not in text else str(text)


def new_rows(items: Sequence[Json], shown: int) -> list[Text]:
    """Rows for what changed after entry `shown`, in order of time; at one instant ends come before begins, parts before
    wholes. An item has a row when it begins and another when it ends."""
    new, now = list[tuple[datetime, bool, int, Json]](), datetime.now(UTC)
    for item in items:
        over = (item["ended_in"] or 0) > shown and item["kind"] not in SINGLE_ROW_KINDS
        if (over or item["entry"] > shown) and not item["repeats"]:
            at = render.instant(item["ended_at" if over else "started_at"])
            new.append((at, not over, -item["depth"] * over, item))
    return [timeline_row(item, now, shown_at) for shown_at, *_, item in sorted(new, key=lambda change: change[:3])]


EXIT_CODES = {
    "done": Exit.OK,
    "escalated": Exit.ESCALATED,
    "paused": Exit.ESCALATED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}
"""Exit codes by status, for runs that ended or pause."""
PAUSED = "paused"
SETTLES_S = 1
"""Wait for a run whose newest entry says that it rests: its view may be an entry behind."""


class RowPrinter:
    """Writes each row of a run after entry `after` once. `load` returns the timeline."""

    def __init__(self, load: Callable[[], Json], write: Callable[[Text], object], after: int = 0) -> None:
        self._load, self._write, self._shown = load, write, after

    def on_entry(self, entry: Json) -> None:
        if entry["seq"] > self._shown:
            items = safe(self._load()["items"])
            for row in new_rows(items, self._shown):
                self._write(row)
            self._shown = max(entry["seq"], *(max(item["entry"], item["ended_in"] or 0) for item in items))


@dataclass(frozen=True, slots=True)
class WaitLine:
    """The wait of a run, with its duration at the time of drawing."""

    view: Json

    def __rich__(self) -> Text:
        return _waiting(self.view) or Text()


def watch_run(agent: AgentClient, *, watch: bool) -> Output:
    """Waits until the run has ended or pauses for a person. With `watch` its rows go to standard error; below them a
    terminal shows what it waits for."""
    agent.retry_while_away()
    printer = RowPrinter(partial(agent.call, "show_timeline"), partial(output.draw_line, indent=INDENT, stderr=True))
    with detach_on_interrupt(agent.run_id), output.console(stderr=True).status("") as line:
        with closing(agent.follow("follow_run", {"run_id": agent.run_id})) as entries:
            for entry in entries:
                if watch and not agent.as_json:
                    printer.on_entry(entry)
                    if line.console.is_terminal:
                        line.update(WaitLine(safe(agent.call("show_run"))))
                if entry["status"] == PAUSED and agent.call("show_run", wait=SETTLES_S)["status"] == PAUSED:
                    break  # what one entry says may be past
        view = agent.call("show_run", wait=SETTLES_S)
    display = run_panel if watch else partial(panel_of, agent)
    return Output(view, display, EXIT_CODES.get(view["status"], Exit.FAILED))


def panel_of(agent: AgentClient, view: Json) -> RenderableType:
    return run_panel(view, safe(agent.call("show_timeline")))


def tail_run(agent: AgentClient, after: int) -> None:
    write, drawn = partial(output.draw_line, indent=INDENT), list[Text]()
    printer = RowPrinter(partial(agent.call, "show_timeline"), write, after)
    for entry in agent.follow("follow_run", {"run_id": agent.run_id}, after):
        printer.on_entry(entry)
        if entry["status"] in EXIT_CODES:
            view = safe(agent.call("show_run"))
            # A run that is followed later has paused before it stood as it does now.
            if view["status"] in EXIT_CODES and (lines := closing_lines(view)) != drawn:
                for line in (drawn := lines):
                    write(line)


@contextmanager
def detach_on_interrupt(run_id: str | None) -> Iterator[None]:
    """Ends the command on Ctrl-C and says that the run goes on; without `run_id`, all runs."""
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        text = f"left; the run goes on: {ways}" if run_id else "left; the runs go on"
        raise NotDone(text, Exit.INTERRUPTED) from None
