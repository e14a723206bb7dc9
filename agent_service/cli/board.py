"""The live board: a run as it goes, drawn several times a second in a terminal that is large enough.

It shows the goal, what is being done now, the definition of done as it is ticked off, the steps with their times, the
budgets and the newest entries. It is fed from one thread and drawn by another: what it holds is replaced, not changed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.spinner import Spinner
from rich.text import Text

from agent_service.cli import show
from agent_service.cli.client import Json
from agent_service.cli.complaints import Refused
from agent_service.cli.follow import Lines, Watcher
from agent_service.cli.stopwatch import Stopwatch

NARROWEST, LOWEST = 60, 18
"""Columns and rows; in a smaller terminal there are lines instead."""
MOST_ENTRIES = 8
DRAWN_PER_S = 8

Look = Callable[[], Json]
"""Gives the newest view of the run; raises Refused while the agent is away."""


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
        with suppress(Refused):  # then the board stays as it is until the agent is back
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
