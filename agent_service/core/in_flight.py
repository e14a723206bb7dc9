"""Pending requests and graphs, in whichever state of the run, or pause, holds them."""

from agent_service.core.facts import AnswerStatus, AttemptAnswered
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Pending, TaskGraph, Waiting, acting_of, answered, then
from schemas.events import ToolError
from schemas.values import replace


def graph_of(waiting: Waiting, step: int) -> TaskGraph | None:
    return next((graph for graph in acting_of(waiting).graphs if graph.step == step), None)


def pending_of(waiting: Waiting, step: int, task: str = "", asked_in: int = 0) -> Pending | None:
    name = (step, task, asked_in)
    return next((one for one in acting_of(waiting).pendings if one.name == name), None)


def with_pending(waiting: Waiting, pending: Pending) -> Waiting:
    now = acting_of(waiting)
    others = tuple([pending if other.name == pending.name else other for other in now.pendings])
    return then(waiting, Acting(pendings=others, graphs=now.graphs))


def without_pending(waiting: Waiting, pending: Pending) -> tuple[Pending, ...]:
    return tuple([other for other in acting_of(waiting).pendings if other.name != pending.name])


def without_step(waiting: Waiting, step: int) -> Waiting:
    now = acting_of(waiting)
    left = tuple([pending for pending in now.pendings if pending.step != step])
    gathered = tuple([graph for graph in now.graphs if graph.step != step])
    return then(waiting, Acting(pendings=left, graphs=gathered)) if left or gathered else answered(waiting)


def with_graph(state: RunState, graph: TaskGraph, under_way_now: tuple[Pending, ...]) -> RunState:
    others = (other for other in state.graphs if other.step != graph.step)
    every = tuple(sorted((*others, graph), key=lambda one: one.step))
    return replace(state, waiting=then(state.waiting, Acting(pendings=under_way_now, graphs=every)))


def answer(pending: Pending, status: AnswerStatus, error: ToolError | None = None) -> AttemptAnswered:
    return AttemptAnswered(
        step=pending.step,
        task=pending.task,
        round=pending.round,
        attempt=pending.attempt,
        tool=pending.action.tool,
        status=status,
        error=error,
    )
