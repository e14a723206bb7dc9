"""Requests to tools that are under way: attempts of steps, and what a step gathers before its tool can answer.

A tool may answer that it needs more first (a continuation). What it asks for are the tasks of its step, which depend on
each other as it says, and may ask for more in their turn. Whoever asked is asked again once all of that came.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.brief import Grant
from agent_service.core.phases import Action

AGAIN = "again"
"""The name of the request that asks a tool once more: of the step by itself, of a task behind its id and a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One attempt of a step, or of a sub-request of it. The instants are those of the request that was sent last.

    `task`, `round`: which sub-request it is; empty and 0 for the step's own request.
    """

    step: int
    attempt: int
    action: Action
    route: str
    requested_at: datetime
    deadline_at: datetime
    until: datetime | None = None
    """The run's deadline as the request names it, where that cuts the time of the tool short: kept, so that the request
    is the same when it is said again after the deadline was moved. It is only ever moved to a later instant."""
    heard: tuple[str, ...] = ()
    """Places in the stream of the messages that answered earlier attempts without naming them."""
    untrusted: bool = False
    """The run held what strangers wrote when it was sent."""
    task: str = ""
    round: int = 0
    grant: Grant | None = None
    """What it may spend, where it is a run that is started as a step (see `children`)."""

    @property
    def name(self) -> tuple[int, str, int]:
        return self.step, self.task, self.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One of several requests that are under way. `retry_at`: when the attempt is sent; null once it is."""

    pending: Pending
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something that a step has to find out, and that is not answered yet.

    `id`: where it was asked for: `task-1` by the step's tool, `task-1.task-2` by that task; empty for the question of
    the step itself. `round`: the number of the continuation that asked for it. `place`: its place there, from 1.
    `action`: what is asked, without the evidence that is given along. `needs`: ids of the tasks whose results it gets.
    `asks`: the number of its newest continuation, while it waits for what that asked for; 0 if it waits for nothing.
    """

    id: str
    round: int
    place: int
    action: Action
    needs: tuple[str, ...] = ()
    kind: Literal["retrieve", "plugin"] = "plugin"
    query: str = ""
    profile: str = ""
    reason: str = ""
    asks: int = 0

    @property
    def again(self) -> str:
        return f"{self.id}.{AGAIN}" if self.id else AGAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """What a step gathers. `first`: its own request, which was answered with the first continuation, at `since`.

    `until`: when its time is over. `round`: how many continuations there were. `tasks`: what is not answered yet, first
    of all the step's own question. `stopped`: why nothing is begun any more; what may have changed something already is
    waited for still. `heard`: places of the messages that answered it without saying which request they answer.
    `words`: how many words of people it has gone on with, without the model: those that came with a ruling, or with the
    answer that reopened the run.
    """

    step: int
    first: Pending
    since: datetime
    until: datetime
    round: int
    tasks: tuple[Task, ...]
    stopped: str = ""
    heard: tuple[str, ...] = ()
    words: int = 0


def asker_of(task_id: str) -> str:
    return task_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What came of a task, for whoever asked for it. `output`: the result object, or the error."""

    step: int
    task: str
    round: int
    place: int
    kind: Literal["retrieve", "plugin"]
    tool: str
    command: str
    status: Literal["ok", "error"]
    output: dict[str, JsonValue]
    query: str = ""
    profile: str = ""

    @property
    def name(self) -> tuple[int, str, int]:
        return self.step, self.task, self.round
