"""How one run looks in a terminal: in a frame, in a line, and row by row as it goes by until it ends, above a line that
says what it waits for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.client import Json
from agent_service.cli.options import Asking
from agent_service.cli.output import Outcome, safe
from agent_service.cli.render import (
    LONGEST_RESULT,
    LONGEST_TEXT,
    MARKS,
    STATUS_WIDTH,
    UNKNOWN,
    Row,
    at,
    classed,
    remedy,
    since,
    status,
    table,
)
from agent_service.history.text import ask_lines, duration, one_line
from groundwork.service.errors import Exit, NotDone

WIDEST, MOST_ROWS, INDENT = 110, 40, 33
"""Columns of a run's frame; rows of what it did there; columns of such a row before its text."""
STANDS = {"queued": "waits for its turn", "paused": "waits for a person"}
SAID_ONCE = frozenset({"accepted", "person", "wait", "ending"})
"""Items of these kinds have one row, when they begin."""


def framed(view: Json, timeline: Json) -> RenderableType:
    """In a frame that says which run it is and how it stands."""
    done = [
        ("✓" if item["done"] else "·", Text.assemble(item["text"], (f"  {', '.join(item['evidence'])}", "dim")))
        for item in view["definition_of_done"]
    ]
    tables = (table(_head(view), "bold"), table(done, "green"), _did(view, timeline), _spent(view), _left(view))
    parts = [part for part in tables if not isinstance(part, Table) or part.row_count]
    spaced = [line for part in parts if part for line in ("", part)]
    title = Text.assemble(view["run_id"], "  ", status(view["status"]))
    colour = MARKS.get(view["status"], UNKNOWN)[1]
    return Constrain(Panel(Group(*spaced[1:]), title=title, title_align="left", border_style=colour), WIDEST)


def _head(view: Json) -> Iterator[Row]:
    yield "goal", one_line(view["goal"], LONGEST_TEXT)
    if waits := _waits_for(view):
        yield "now", waits
    if view["outcome"]:
        yield "outcome", one_line(view["outcome"], LONGEST_TEXT)
    asks = list(ask_lines(view["asks"]))
    if not asks and view["status"] != "done" and (view["reason"] or view["status"] == "paused"):
        yield "why", classed(view["class"], view["reason"] or view["summary"], view["status"])
    yield from (*asks, *remedy(view["remedy"]))


def now(view: Json) -> Text:
    """A run that goes on, in a line."""
    done = [item["done"] for item in view["definition_of_done"]]
    proven = Text(f"{sum(done)} of {len(done)} done" if done else "nothing framed yet")
    return Text(" · ").join(filter(None, (_waits_for(view), proven, _spent(view))))


def stopped(view: Json) -> list[Text]:
    """Lines after the rows of a run that ended or pauses."""
    told = (*ask_lines(view["asks"]), *remedy(view["remedy"]), ("spent", _spent(view)))
    return [Text(f"{'':12}{name:<21}{text}") for name, text in told]


def _waits_for(view: Json) -> Text | None:
    waits = view["waiting_for"]
    how_long = f", {since(waits)}" if waits else ""
    if view["stopped"]:
        return Text(f"{one_line(view['stopped'], LONGEST_TEXT)}; `agentic go-on` lets it go on", style="yellow")
    if view["status"] in STANDS:
        return Text(f"{STANDS[view['status']]}{how_long}")
    if not waits:
        return None
    told = Text(f"waits for {one_line(waits['text'], LONGEST_TEXT)}{how_long}")
    for one in view["pendings"]:
        if one["present"] is False:
            told.append(f"; {one['executor']} does not answer: is it running?", style="yellow")
        if one["trouble"]:
            told.append(f"; its executor says: {one_line(one['trouble'], LONGEST_RESULT)}", style="yellow")
    return told


def _did(view: Json, timeline: Json) -> Table:
    """The newest of what a run did, each item followed by its parts."""
    items, now = [item for item in timeline["items"] if not item["repeats"]], datetime.now(UTC)
    made = _hanging()
    if len(items) > MOST_ROWS:
        made.add_row("", Text(f"{len(items) - MOST_ROWS} earlier ones: agentic tail {view['run_id']}", style="dim"))
    for item in items[-MOST_ROWS:]:
        line = row(item, now)
        stderr = (item["execution"] or {}).get("stderr")
        if item["kind"] == "step" and item["error"] and stderr:
            line.append(f"\nstderr: {one_line(stderr, LONGEST_TEXT)}", style="dim")
        made.add_row(*line.divide([INDENT]))
    return made


def _spent(view: Json) -> Text:
    """Of each budget, in a colour where it is nearly spent, and in all."""
    usage, budget, ended, told = view["usage"], view["budget"], view["ended_at"], list[tuple[str, str]]()
    for name, how in (("steps", "{:,}"), ("tokens", "{:,}"), ("reframes", "{}"), ("cost_usd", "{:.4f}")):
        used, limit = budget[name], budget[f"max_{name}"]
        if used is not None and limit is not None and (used or name != "reframes"):
            style = "red" if used >= limit else "yellow" if used >= 0.8 * limit else ""
            told.append((f"{name.removeprefix('cost_')} {how.format(used)} of {how.format(limit)}", style))
    calls = f"{usage['calls']} model call{'' if usage['calls'] == 1 else 's'}"
    by = f" ({', '.join(view['models'])})" if view["models"] else ""
    cached = f" ({usage['cache_read_tokens']:,} cached)" if usage["cache_read_tokens"] else ""
    cost = "cost unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    told.append((f"{calls}{by}, {usage['tokens']:,} tokens{cached}, {cost}", "dim"))
    told += [(f"took {duration(at(ended) - at(view['accepted_at']))}", "dim")] if ended else []
    return Text(" · ").join(Text(*part) for part in told)


def _left(view: Json) -> Table:
    rows = [("asked for", f"by {view['parent_run_id']}")] if view["parent_run_id"] else []
    rows += [(f"step {child['step']}", f"run {child['run_id']}") for child in view["children"]]
    rows += [("artifact", path) for path in view["artifacts"]]
    rows += [("trace", view["trace_url"])] if view["trace_url"] else []
    return table(rows, names="bold")


def row(item: Json, now: datetime, told_at: datetime | None = None) -> Text:
    """An item of a timeline: when it began, or `told_at`; its name, how long it took until its end or `now`, what it
    said and what it cost."""
    kind, began = item["kind"], at(item["started_at"])
    standing = "over" if kind == "wait" and item["ended_at"] else item["status"]
    standing = str({"accepted": "ok", "ending": item["title"].lower()}.get(kind, standing))
    ended = at(item["ended_at"]) if item["ended_at"] else now
    took = "" if standing == "open" or kind in ("person", "ending") else duration(max(timedelta(), ended - began))
    mark, colour = MARKS.get(standing, UNKNOWN)
    title = Text.assemble(
        (f"{mark} ", colour), (_name(item, standing), "bold" if standing in ("open", "error") else "")
    )
    title.pad_right(max(0, STATUS_WIDTH - title.cell_len))
    usage = item["usage"] or {}
    count, cost = usage.get("input_tokens", 0) + usage.get("output_tokens", 0), usage.get("cost_usd")
    spent = ", ".join([f"{count:,} tokens"] * bool(count) + ([f"{cost:.4f} USD"] if cost else []))
    return Text.assemble(
        (f"{(told_at or began).astimezone(UTC):%H:%M:%S}  ", "dim"),
        title,
        (f"{took:>8}  ", "dim"),
        (one_line(_text(item), LONGEST_TEXT), colour if standing == "error" else ""),
        (f" ({spent})" if spent else "", "dim"),
    )


def _name(item: Json, standing: str) -> str:
    indent, attempt = " " * item["depth"], f"attempt {item['attempt']}" if ":attempt:" in item["id"] else "a result"
    names = {"phase": item["phase"], "step": f"step {item['step']}", "task": f"{indent}{item['task']}", "wait": "waits"}
    return str({**names, "attempt": indent + attempt, "ending": standing}.get(item["kind"], item["kind"]))


def _text(item: Json) -> str:
    kind, text, title, error = item["kind"], item["text"], item["title"], item["error"]
    if kind in ("step", "task") and item["status"] in ("open", "waiting"):
        return str(title.partition(": ")[2] + (f": {text}" if kind == "task" and text else ""))
    text = ": ".join(filter(None, (title, text))) if kind in ("person", "wait") else text
    return f"{error['class']}: {text}" if error and error["class"] not in text else str(text)


def hanging(line: Text) -> RenderableType:
    """A row for a terminal: what does not fit goes on below, beneath what it is about."""
    made = _hanging()
    made.add_row(*line.divide([INDENT]))
    return made


def _hanging() -> Table:
    made = Table.grid()
    made.add_column(width=INDENT, no_wrap=True)
    made.add_column(overflow="fold")
    return made


def new_rows(items: Sequence[Json], shown: int) -> list[Text]:
    """The rows after entry `shown`, by instant; then ends before beginnings, parts before wholes. An item has one when
    it begins, and one when it ends."""
    new, now = list[tuple[datetime, bool, int, Json]](), datetime.now(UTC)
    for item in items:
        is_over = (item["ended_in"] or 0) > shown and item["kind"] not in SAID_ONCE
        if (is_over or item["entry"] > shown) and not item["repeats"]:
            new.append((at(item["ended_at" if is_over else "started_at"]), not is_over, -item["depth"] * is_over, item))
    return [row(item, now, told_at) for told_at, *_, item in sorted(new, key=lambda told: told[:3])]


OF_STATUS = {
    "done": Exit.OK,
    "escalated": Exit.ESCALATED,
    "paused": Exit.ESCALATED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}
"""Exit codes of the statuses in which a run waits for a person, or has ended."""
PAUSED = "paused"


class Story:
    """Writes the rows of a run after entry `after`, each once. `look` gives its timeline."""

    def __init__(self, look: Callable[[], Json], write: Callable[[Text], object], after: int = 0) -> None:
        self._look, self._write, self._shown = look, write, after

    def saw(self, entry: Json) -> None:
        if entry["seq"] > self._shown:
            items = safe(self._look()["items"])
            for row in new_rows(items, self._shown):
                self._write(row)
            self._shown = max(entry["seq"], *(max(item["entry"], item["ended_in"] or 0) for item in items))


def run(asking: Asking, *, watch: bool) -> Outcome:
    """Until the run has ended or pauses for a person."""
    asking.agent.be_patient()
    with leaving(asking.run_id), _watching(asking, output.console(stderr=True), silent=not watch) as saw:
        with closing(asking.agent.follow("follow_run", {"run_id": asking.run_id})) as entries:
            for entry in entries:
                saw(entry)
                if entry["status"] == PAUSED and asking.ask("show_run")["status"] == PAUSED:
                    break  # what one entry says may be past
        view = asking.ask("show_run")
    return Outcome(view, partial(drawn, asking), OF_STATUS.get(view["status"], Exit.FAILED))


def drawn(asking: Asking, view: Json) -> RenderableType:
    return framed(view, safe(asking.ask("show_timeline")))


@contextmanager
def _watching(asking: Asking, console: Console, *, silent: bool) -> Iterator[Callable[[Json], None]]:
    look = partial(asking.ask, "show_timeline")
    if silent or asking.as_json:
        yield lambda _: None
    elif not console.is_interactive or console.is_dumb_terminal:
        yield Story(look, partial(console.print, soft_wrap=True)).saw
    else:
        with console.status("") as line:
            story = Story(look, lambda row: console.print(hanging(row)))

            def saw(entry: Json) -> None:
                story.saw(entry)
                line.update(now(safe(asking.ask("show_run"))))

            yield saw


def tell(asking: Asking, run_id: str, after: int) -> None:
    path, is_terminal = {"run_id": run_id}, output.console().is_terminal

    def write(line: Text) -> None:
        output.draw(hanging(line) if is_terminal else line, wrap=is_terminal)

    story = Story(lambda: asking.agent.ask("show_timeline", path), write, after)
    for entry in asking.agent.follow("follow_run", path, after):
        story.saw(entry)
        if entry["status"] in OF_STATUS:
            for line in stopped(safe(asking.agent.ask("show_run", path))):
                write(line)


@contextmanager
def leaving(run_id: str | None) -> Iterator[None]:
    """Ctrl-C leaves; without a run, all of them."""
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        told = f"left; the run goes on: {ways}" if run_id else "left; the runs go on"
        raise NotDone(told, Exit.INTERRUPTED) from None
