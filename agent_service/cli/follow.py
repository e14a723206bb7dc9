"""Watching a run until it ends: silently, line by line, or on a live board."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from rich.console import Console

from agent_service.cli import show
from agent_service.cli.client import AgentClient, Json
from agent_service.cli.complaints import Refused
from agent_service.cli.exits import Exit
from agent_service.cli.stopwatch import Stopwatch

PAUSED = "paused"


class Watcher(Protocol):
    """Is told what happens to a run."""

    def saw(self, entry: Json) -> None:
        """The run has a new entry."""

    def away(self, why: str) -> None:
        """The agent does not answer; with an empty text: it does again."""


class Silent:
    """Says nothing. Fills Watcher."""

    def saw(self, entry: Json) -> None: ...

    def away(self, why: str) -> None: ...


class Lines:
    """Prints a line for each entry: for files, pipes and small terminals. Fills Watcher."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._away = False

    def saw(self, entry: Json) -> None:
        self._console.print(show.entry(entry), soft_wrap=True)

    def away(self, why: str) -> None:
        if bool(why) != self._away:
            self._away = bool(why)
            self._console.print("the agent is away, waiting…" if why else "the agent is back", style="yellow")


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


@contextmanager
def leaving(run_id: str) -> Iterator[None]:
    """Ctrl-C in here leaves the run alone, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        ways = f"`agentic show --watch {run_id}` comes back to it, `agentic cancel {run_id}` ends it"
        raise Refused(f"left; the run goes on: {ways}", Exit.INTERRUPTED) from None
