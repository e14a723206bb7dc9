"""Watches a run until it ends: silently, or row by row, in a terminal above a line that says what it waits for."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from rich.console import Console, RenderableType
from rich.text import Text

from agent_service.cli import output, render_run
from agent_service.cli.client import Json
from agent_service.cli.options import Asking
from agent_service.cli.output import Outcome, safe
from agent_service.cli.render_run import hanging, new_rows
from groundwork.service.errors import Exit, NotDone

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
    return render_run.run(view, safe(asking.ask("show_timeline")))


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
                line.update(render_run.now(safe(asking.ask("show_run"))))

            yield saw


def tell(asking: Asking, run_id: str, after: int) -> None:
    path, is_terminal = {"run_id": run_id}, output.console().is_terminal

    def write(line: Text) -> None:
        output.draw(hanging(line) if is_terminal else line, wrap=is_terminal)

    story = Story(lambda: asking.agent.ask("show_timeline", path), write, after)
    for entry in asking.agent.follow("follow_run", path, after):
        story.saw(entry)
        if entry["status"] in OF_STATUS:
            for line in render_run.stopped(safe(asking.agent.ask("show_run", path))):
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
