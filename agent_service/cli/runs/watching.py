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

OF_STATUS = {
    "done": Exit.OK,
    "escalated": Exit.ESCALATED,
    "paused": Exit.ESCALATED,
    "failed": Exit.FAILED,
    "cancelled": Exit.CANCELLED,
}
"""Exit codes of the statuses in which a run waits for a person, or has ended."""
PAUSED = "paused"
Saw = Callable[[Json], None]
"""Is told each entry of a run that is watched."""


def rows(timeline: Look, write: Callable[[Text], None], *, after: int = 0, stands: Callable[[], object] = tuple) -> Saw:
    """Writes the rows after entry `after`. `stands` is called after each entry, to show how the run stands."""
    new_rows = NewRows(lambda: fit(timeline()), after)

    def saw(entry: Json) -> None:
        with unless_away():  # then a later entry tells of this one too
            for row in new_rows.so_far(entry):
                write(row)
            stands()

    return saw


@contextmanager
def watching(client: AgentClient, run_id: str, console: Console) -> Iterator[Saw]:
    timeline = partial(client.timeline, run_id)
    if not console.is_interactive or console.is_dumb_terminal:
        yield rows(timeline, partial(console.print, soft_wrap=True))
        return
    with console.status("") as line:
        yield rows(
            timeline,
            lambda row: console.print(hanging(row)),
            stands=lambda: line.update(show.now(fit(client.run(run_id)))),
        )


def to_the_end(client: AgentClient, run_id: str, saw: Saw) -> Json:
    """Follow the run from its first entry. Its view, when it has ended or pauses for a person."""
    with closing(client.follow(run_id)) as entries:
        for entry in entries:
            saw(entry)
            if entry["status"] == PAUSED and client.run_in_time(run_id)["status"] == PAUSED:
                break  # what one entry says may be past
    return client.run_in_time(run_id)


def show_to_the_end(client: AgentClient, run_id: str, *, watch: bool, as_json: bool) -> Exit:
    is_shown = watch and not as_json
    with leaving(run_id), watching(client, run_id, output.console(stderr=True)) if is_shown else nullcontext() as saw:
        view = to_the_end(client, run_id, saw or (lambda _: None))
    output.show(view, lambda view: show.run(view, client.timeline(run_id)), as_json=as_json)
    return OF_STATUS.get(view["status"], Exit.FAILED)


def tell_to_the_end(client: AgentClient, run_id: str, after: int) -> None:
    saw = rows(partial(client.timeline, run_id), _draw, after=after)
    for entry in client.follow(run_id, after):
        saw(entry)
        if entry["status"] in OF_STATUS:
            view = client.run_in_time(run_id)
            saw(entry)  # what could not be asked a moment ago
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
