"""Watches a run until it ends: silently, line by line, or on a live board in a terminal that is large enough.

One thread feeds the board and another draws it: what it holds is replaced, not changed.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.spinner import Spinner
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.client import AgentClient, Json, unless_away
from agent_service.cli.errors import OF_STATUS, Exit, NotDone
from agent_service.cli.runs import show
from agent_service.cli.runs.drawing import fit
from agent_service.cli.runs.story import Look, Row, Story, hanging, rows
from groundwork.service.invisible import visible

PAUSED = "paused"


class Watcher(Protocol):
    def saw(self, entry: Json) -> None: ...

    def away(self, why: str) -> None:
        """The agent does not answer; with an empty text: it does again."""


class Silent:
    def saw(self, entry: Json) -> None: ...

    def away(self, why: str) -> None: ...


class ToldOnce:
    """Says on standard error that the agent is waited for, and that it is back: each once."""

    def __init__(self) -> None:
        self._waiting = False

    def away(self, why: str) -> None:
        if bool(why) != self._waiting:
            self._waiting = bool(why)
            output.complain(f"waiting for the agent: {visible(why)}" if why else "the agent is back")


class Lines(ToldOnce):
    """Tells the story line by line, from after entry `after` on: for files, pipes, small terminals. Fills Watcher."""

    def __init__(self, timeline: Look, write: Callable[[Row], None], *, after: int = 0) -> None:
        super().__init__()
        self._story = Story(lambda: fit(timeline()), after)
        self._write = write

    def saw(self, entry: Json) -> None:
        with unless_away():  # then a later entry tells of this one too
            for row in self._story.so_far(entry):
                self._write(row)


def to_the_end(client: AgentClient, run_id: str, watcher: Watcher) -> Json:
    """Follow the run from its first entry. Its view, when it has ended or pauses for a person."""
    with closing(client.follow(run_id, away=watcher.away)) as entries:
        for entry in entries:
            watcher.saw(entry)
            if entry["status"] == PAUSED and client.run_in_time(run_id, watcher.away)["status"] == PAUSED:
                break  # what one entry says may be past
    return client.run_in_time(run_id, watcher.away)


def show_to_the_end(client: AgentClient, run_id: str, *, watch: bool, as_json: bool) -> Exit:
    with leaving(run_id):
        if watch and not as_json:
            with watching(client, run_id, output.console(stderr=True)) as watcher:
                view = to_the_end(client, run_id, watcher)
        else:
            view = to_the_end(client, run_id, Silent())
    output.show(view, lambda view: show.run(view, client.timeline(run_id)), as_json=as_json)
    return OF_STATUS.get(view["status"], Exit.FAILED)


def tell_to_the_end(client: AgentClient, run_id: str, after: int) -> None:
    told = Lines(partial(client.timeline, run_id), lambda row: _draw(row.line), after=after)
    for entry in client.follow(run_id, after, away=told.away):
        told.saw(entry)
        if entry["status"] in OF_STATUS:
            view = client.run_in_time(run_id, told.away)
            told.saw(entry)  # what could not be asked a moment ago
            for line in show.stopped(view):
                _draw(line)


def _draw(line: Text) -> None:
    if output.console().is_terminal:
        output.draw(hanging(line))
    else:
        output.draw(line, wrap=False)


@contextmanager
def leaving(run_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        raise NotDone(f"left; the run goes on: {ways}", Exit.INTERRUPTED) from None


@contextmanager
def leaving_all() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise NotDone("left; the runs go on", Exit.INTERRUPTED) from None


NARROWEST, LOWEST = 60, 18
"""Columns and rows; in a smaller terminal there are lines instead."""
DRAWN_PER_S = 8


class Board:
    def __init__(self, view: Look, timeline: Look, console: Console) -> None:
        self._looks = view, timeline
        self._console = console
        self._why_away = ""
        self._seen = self._look()

    def saw(self, entry: Json) -> None:  # noqa: ARG002 - all that is known is asked for
        self._look_again()

    def away(self, why: str) -> None:
        self._why_away = why
        if not why:
            self._look_again()

    def picture(self) -> RenderableType:
        """The board as it is now, never higher than the terminal: what does not fit could not be wiped out again."""
        room = self._console.height - 1
        bare = self._console.render_lines(self._drawn(0), pad=False)
        lines = self._console.render_lines(self._drawn(room - len(bare) - 2), pad=False)
        return Group(SegmentLines(lines[:room], new_lines=True))

    def _look_again(self) -> None:
        with unless_away():  # then the board stays as it is until the agent is back
            self._seen = self._look()

    def _look(self) -> tuple[Json, Json]:
        view, timeline = (look() for look in self._looks)
        return fit(view), fit(timeline)

    def _drawn(self, room: int) -> RenderableType:
        (view, timeline), now = self._seen, datetime.now(UTC)
        history = show.history(view, rows(timeline, now), most=room, whole=False) if room > 0 else None
        return show.framed(view, show.head(view, self._now()), show.done_items(view), history, show.spent(view, now))

    def _now(self) -> RenderableType | None:
        if self._why_away:
            return Spinner("dots", Text("the agent is away, waiting…", style="yellow"), style="yellow")
        waits_for = show.waits_for(self._seen[0])
        return Spinner("dots", waits_for, style="cyan") if waits_for else None


@contextmanager
def watching(client: AgentClient, run_id: str, console: Console, *, stays: bool = False) -> Iterator[Watcher]:
    """A watcher that shows the run on `console` in the best way it can; with `stays` the last picture is left there."""
    view, timeline = partial(client.run, run_id), partial(client.timeline, run_id)
    if not console.is_interactive or console.is_dumb_terminal or console.width < NARROWEST or console.height < LOWEST:
        yield Lines(timeline, lambda row: console.print(row.line, soft_wrap=True))
        return
    board = Board(view, timeline, console)
    with Live(
        get_renderable=board.picture,
        console=console,
        refresh_per_second=DRAWN_PER_S,
        transient=not stays,
    ):
        yield board
