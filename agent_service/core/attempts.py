"""Tool requests in flight: attempts of steps, and what a step gathers before its tool can answer.

A tool may ask for more first (a continuation): tasks of its step, with dependencies, that may ask for more in turn.
"""

from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from agent_service.core.brief import Grant
from agent_service.core.phases import Action
from agent_service.sentences import Text
from schemas.values import dataclass

AGAIN = "again"
"""The name of the request that asks a tool once more; of a task: behind its id and a dot."""


Name = tuple[int, str, int]
"""Step, task and round of a tool request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRequest:
    """Of the tool request of a step, or of a task of it. `task` and `round` are empty and 0 for the step's own."""

    step: int
    task: str = ""
    round: int = 0

    @property
    def name(self) -> Name:
        return self.step, self.task, self.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(OfRequest):
    """A request without an answer. The instants are those of the newest one. `retry_at`: when the attempt is sent; null
    once it is.
    """

    attempt: int
    action: Action
    route: str
    requested_at: datetime
    deadline_at: datetime
    until: datetime | None = None
    """The run's deadline where it cuts the tool's time: kept, so that a repeated request stays the same."""
    nameless: tuple[str, ...] = ()
    """Places in the stream of messages that answered earlier attempts without naming them."""
    untrusted: bool = False
    grant: Grant | None = None
    retry_at: datetime | None = None

    @property
    def due_at(self) -> datetime:
        return self.retry_at or self.deadline_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An open sub-request. `id`: `task-1` by the step's tool, `task-1.task-2` by that task; empty for the step's own
    question. `round` and `place`: its continuation, and its place there from 1. `action`: without the evidence given
    along. `needs`: ids of the tasks whose results it gets. `asks`: the continuation that it waits for, or 0.
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
class TaskGraph:
    """What a step gathers. `first`: its own request, answered with the first continuation at `since`. `round`:
    continuations so far. `tasks`: open ones, first the step's own question. `stopped`: why nothing more begins;
    possible writes are waited for. `nameless`: places of messages that answered without naming a request. `words`:
    words of people that it has gone on with, without the model.
    """

    step: int
    first: Pending
    since: datetime
    until: datetime
    round: int
    tasks: tuple[Task, ...]
    stopped: Text = ""
    nameless: tuple[str, ...] = ()
    words: int = 0

    @property
    def due_at(self) -> datetime:
        return self.until


def asker_of(task_id: str) -> str:
    return task_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(OfRequest):
    """`output`: the result object, or the error."""

    place: int
    kind: Literal["retrieve", "plugin"]
    tool: str
    command: str
    status: Literal["ok", "error"]
    output: dict[str, JsonValue]
    query: str = ""
    profile: str = ""
