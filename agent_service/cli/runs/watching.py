"""Watches a run until it ends: silently, or row by row, in a terminal above a line that says what it waits for."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial

from rich.console import Console
from rich.text import Text

from agent_service.cli import output
from agent_service.cli.client import AgentClient, Json, unless_away
from agent_service.cli.runs import show
from agent_service.cli.runs.drawing import fit
from agent_service.cli.runs.rows import Look, NewRows, hanging
from groundwork.service.exits import Exit, NotDone
from groundwork.service.invisible import visible

OF_STATUS = {
    "done": Exit.OK,
    "escalated": Exit.ESCALATED,
    "paused": Exit.ESCALATED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}
"""Of the states in which a run waits for nobody but a person, or nobody at all."""
PAUSED = "paused"


class Watcher:
    """Watches silently."""

    def saw(self, entry: Json) -> None: ...

    def away(self, why: str) -> None:
        """The agent does not answer; with an empty text: it does again."""


class ToldOnce(Watcher):
    """Says once on standard error that the agent is away, and once that it is back."""

    def __init__(self) -> None:
        self._waiting = False

    def away(self, why: str) -> None:
        if bool(why) != self._waiting:
            self._waiting = bool(why)
            output.complain(f"waiting for the agent: {visible(why)}" if why else "the agent is back")


class Rows(ToldOnce):
    """Writes the rows after entry `after`. `stands` is called after each entry, to show how the run stands."""

    def __init__(
        self, timeline: Look, write: Callable[[Text], None], *, after: int = 0, stands: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self._new_rows = NewRows(lambda: fit(timeline()), after)
        self._write = write
        self._stands = stands

    def saw(self, entry: Json) -> None:
        with unless_away():  # then a later entry tells of this one too
            for row in self._new_rows.so_far(entry):
                self._write(row)
            if self._stands:
                self._stands()


@contextmanager
def watching(client: AgentClient, run_id: str, console: Console) -> Iterator[Watcher]:
    timeline = partial(client.timeline, run_id)
    if not console.is_interactive or console.is_dumb_terminal:
        yield Rows(timeline, partial(console.print, soft_wrap=True))
        return
    with console.status("") as line:
        yield Rows(
            timeline,
            lambda row: console.print(hanging(row)),
            stands=lambda: line.update(show.now(fit(client.run(run_id)))),
        )


def to_the_end(client: AgentClient, run_id: str, watcher: Watcher) -> Json:
    """Follow the run from its first entry. Its view, when it has ended or pauses for a person."""
    with closing(client.follow(run_id, away=watcher.away)) as entries:
        for entry in entries:
            watcher.saw(entry)
            if entry["status"] == PAUSED and client.run_in_time(run_id, watcher.away)["status"] == PAUSED:
                break  # what one entry says may be past
    return client.run_in_time(run_id, watcher.away)


def show_to_the_end(client: AgentClient, run_id: str, *, watch: bool, as_json: bool) -> Exit:
    seen = watching(client, run_id, output.console(stderr=True)) if watch and not as_json else nullcontext(Watcher())
    with leaving(run_id), seen as watcher:
        view = to_the_end(client, run_id, watcher)
    output.show(view, lambda view: show.run(view, client.timeline(run_id)), as_json=as_json)
    return OF_STATUS.get(view["status"], Exit.FAILED)


def tell_to_the_end(client: AgentClient, run_id: str, after: int) -> None:
    told = Rows(partial(client.timeline, run_id), _draw, after=after)
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
def leaving(run_id: str | None) -> Iterator[None]:
    """Ctrl-C leaves; without a run, all of them."""
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        told = f"left; the run goes on: {ways}" if run_id else "left; the runs go on"
        raise NotDone(told, Exit.INTERRUPTED) from None
