"""Watching a run until it ends: silently, line by line, or on a live board, and how long its steps take.

The board is drawn several times a second in a terminal that is large enough. It shows the goal, what is being done now,
the definition of done as it is ticked off, the steps with their times, the budgets and the newest entries. It is fed
from one thread and drawn by another: what it holds is replaced, not changed.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.spinner import Spinner
from rich.text import Text

from agent_service.cli import output, show
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.complaints import NotDone
from agent_service.cli.exits import OF_STATUS, Exit
from agent_service.telling.plain import visible


class Stopwatch:
    """Is shown the entries in order, from the run's first on. May be read by another thread meanwhile."""

    def __init__(self) -> None:
        self._began: dict[int, datetime] = {}
        self._ended: dict[int, datetime] = {}
        self._pending: int | None = None

    def saw(self, entry: dict[str, Any]) -> None:
        at, pending = datetime.fromisoformat(entry["at"]), entry["pending_step"]
        if self._pending is not None and self._pending != pending:
            self._ended = {**self._ended, self._pending: at}
        if pending is not None:
            self._began = {pending: at, **self._began}
        self._pending = pending

    def took(self, now: datetime) -> dict[int, timedelta]:
        """By step, all attempts together; the pending one until `now`."""
        began, ended = self._began, self._ended
        return {step: ended.get(step, now) - began[step] for step in sorted(began)}


PAUSED = "paused"


class Watcher(Protocol):
    """Is told what happens to a run."""

    def saw(self, entry: Json) -> None:
        """The run has a new entry."""

    def away(self, why: str) -> None:
        """The agent does not answer; with an empty text: it does again."""


class ToldOnce:
    """Says on standard error that the agent is waited for, and that it is back: each once. An `Away`."""

    def __init__(self) -> None:
        self._waiting = False

    def __call__(self, why: str) -> None:
        if bool(why) != self._waiting:
            self._waiting = bool(why)
            output.complain(f"waiting for the agent: {visible(why)}" if why else "the agent is back")


class Silent:
    """Says nothing. Fills Watcher."""

    def saw(self, entry: Json) -> None: ...

    def away(self, why: str) -> None: ...


class Lines:
    """Prints a line for each entry: for files, pipes and small terminals. Fills Watcher."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._absence = ToldOnce()

    def saw(self, entry: Json) -> None:
        self._console.print(show.entry(entry), soft_wrap=True)

    def away(self, why: str) -> None:
        self._absence(why)


@dataclass(frozen=True, slots=True)
class Followed:
    """A run that has ended, or pauses for a person: its view, and how long its steps took, by number."""

    view: Json
    took: dict[int, timedelta]


def to_the_end(client: AgentClient, run_id: str, watcher: Watcher) -> Followed:
    """Follow the run from its first entry."""
    stopwatch = Stopwatch()
    with closing(client.follow(run_id, away=watcher.away)) as entries:
        for entry in entries:
            stopwatch.saw(entry)
            watcher.saw(entry)
            if entry["status"] == PAUSED and client.run_in_time(run_id, watcher.away)["state"] == PAUSED:
                break  # what one entry says may be past
    return Followed(client.run_in_time(run_id, watcher.away), stopwatch.took(datetime.now(UTC)))


def show_to_the_end(client: AgentClient, run_id: str, *, watch: bool, as_json: bool) -> Exit:
    """Wait for the end of the run, print the run, and say with which code to exit."""
    with leaving(run_id):
        if watch and not as_json:
            with watching(lambda: client.run(run_id), output.console(stderr=True)) as watcher:
                followed = to_the_end(client, run_id, watcher)
        else:
            followed = to_the_end(client, run_id, Silent())
    output.show(followed.view, lambda view: show.run(view, followed.took), as_json=as_json)
    return OF_STATUS.get(followed.view["state"], Exit.FAILED)


@contextmanager
def leaving(run_id: str) -> Iterator[None]:
    """Ctrl-C in here leaves the run alone, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        raise NotDone(f"left; the run goes on: {ways}", Exit.INTERRUPTED) from None


NARROWEST, LOWEST = 60, 18
"""Columns and rows; in a smaller terminal there are lines instead."""
MOST_ENTRIES = 8
DRAWN_PER_S = 8

Look = Callable[[], Json]
"""Gives the newest view of the run; raises NotDone while the agent is away."""


class Board:
    """What is known of one run. Fills Watcher."""

    def __init__(self, look: Look, console: Console) -> None:
        self._look_again = look
        self._console = console
        self._view = show.fit(look())
        self._entries: tuple[Text, ...] = ()
        self._watch = Stopwatch()
        self._why_away = ""

    def saw(self, entry: Json) -> None:
        self._watch.saw(entry)
        self._entries = (*self._entries, show.on_one_row(show.entry(entry)))[-MOST_ENTRIES:]
        self._look()

    def away(self, why: str) -> None:
        self._why_away = why
        if not why:
            self._look()

    def picture(self) -> RenderableType:
        """The board as it is now, never higher than the terminal: what does not fit could not be wiped out again."""
        rows = self._console.height - 1
        lines = self._console.render_lines(self._whole(), pad=False)[:rows]
        entries = self._entries[-(rows - len(lines)) :] if len(lines) < rows else ()
        return Group(SegmentLines(lines, new_lines=True), *entries)

    def _look(self) -> None:
        with suppress(NotDone):  # then the board stays as it is until the agent is back
            self._view = show.fit(self._look_again())

    def _whole(self) -> RenderableType:
        view, now = self._view, datetime.now(UTC)
        steps = show.steps(view, self._watch.took(now))
        return show.framed(view, show.head(view, self._now()), show.done_items(view), steps, show.spent(view, now))

    def _now(self) -> RenderableType | None:
        if self._why_away:
            return Spinner("dots", Text("the agent is away, waiting…", style="yellow"), style="yellow")
        waits_for = show.waits_for(self._view)
        return Spinner("dots", waits_for, style="cyan") if waits_for else None


@contextmanager
def watching(look: Look, console: Console, *, stays: bool = False) -> Iterator[Watcher]:
    """A watcher that shows the run on `console` in the best way it can; with `stays` the last picture is left there."""
    if not console.is_interactive or console.is_dumb_terminal or console.width < NARROWEST or console.height < LOWEST:
        yield Lines(console)
        return
    board = Board(look, console)
    with Live(
        get_renderable=board.picture,
        console=console,
        refresh_per_second=DRAWN_PER_S,
        transient=not stays,
    ):
        yield board
