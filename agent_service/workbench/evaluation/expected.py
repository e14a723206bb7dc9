"""What a scenario expects of a run, as its file says it, and a line for everything that is not so. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.models.prompts.notes import canonical
from agent_service.models.scripted_model import Pattern
from agent_service.workbench.evaluation.observed import Happening, Observed, Request, happenings


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bounds(_Strict):
    at_least: Annotated[int, Field(ge=0)] = 0
    at_most: Annotated[int, Field(ge=0)] | None = None

    def __str__(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"{self.at_least} to {self.at_most}" if self.at_least < self.at_most else str(self.at_most)

    def hold(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


class Call(_Strict):
    """Of a tool, a command, with arguments whose canonical JSON matches. `task`: part of a sub-request's name."""

    tool: str
    command: str | None = None
    when: Pattern | None = None
    task: Pattern | None = None

    def __str__(self) -> str:
        command = f" {self.command}" if self.command else ""
        task = f" for task /{self.task.pattern}/" if self.task else ""
        return f"{self.tool}{command}{f' with /{self.when.pattern}/' if self.when else ''}{task}"


class WantedCall(Call):
    at_least: Annotated[int, Field(ge=0)] = 1
    at_most: Annotated[int, Field(ge=0)] | None = None

    @property
    def bounds(self) -> Bounds:
        return Bounds(at_least=self.at_least, at_most=self.at_most)


def _call(given: Any) -> Any:
    return {"tool": given} if isinstance(given, str) else given


class Children(Bounds):
    status: tuple[Status, ...] = ()


class Expected(_Strict):
    """All that is given must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    status: tuple[Status, ...] = ()
    """One of these; `paused` is where a run rests that is not resumed."""
    ending_class: Annotated[tuple[str, ...], Field(alias="class")] = ()
    """One of these; only of a run that is not done: how it ended, as its event says it."""
    outcome: Pattern | None = None
    """In the outcome of a run that is done, in the reason of one that is not."""
    steps: Bounds = Bounds()
    calls: Bounds = Bounds()
    """Replies of the model."""
    tasks: Bounds = Bounds()
    """Sub-requests of its steps, but for those that ask a tool again, which `rounds` counts."""
    rounds: Bounds = Bounds()
    children: Children = Children()
    must_call: tuple[Annotated[WantedCall, BeforeValidator(_call)], ...] = ()
    never_call: tuple[Annotated[Call, BeforeValidator(_call)], ...] = ()
    never_say: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    """In no argument of a tool and in no event of the agent: saying it counts as a broken rule."""
    must_happen: tuple[Happening, ...] = ()
    never_happen: tuple[Happening, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "Expected":
        if not self.model_fields_set:
            raise ValueError("expects nothing: name at least a status")
        return self


MOST_SHOWN = 5
LONGEST_REASON = 300


def unmet(expected: Expected, seen: Observed) -> list[str]:
    if seen.broken:
        return [seen.broken]
    if seen.state is None:
        return ["a run was expected; the wake was refused"]
    return [
        *_ending(expected, seen.state),
        *_steps(expected, seen.state),
        *_model_calls(expected, seen.state),
        *_gathered(expected, seen),
        *_children(expected, seen),
        *_calls(expected, seen),
        *_happened(expected, seen),
    ]


def said_at_the_end(state: RunState) -> str:
    """The outcome of a run that is done, else why it ended or rests."""
    return str(state.outcome if state.status is Status.DONE else state.reason or state.summary)


def _ending(expected: Expected, state: RunState) -> Iterator[str]:
    said = said_at_the_end(state)
    where = f"the last entry, {state.version}, says: {said[:LONGEST_REASON]!r}"
    if expected.status and state.status not in expected.status:
        yield f"expected status {_either(expected.status)}; it is {state.status}; {where}"
    if expected.ending_class and state.status is not Status.DONE and state.ending_class not in expected.ending_class:
        yield f"expected class {_either(expected.ending_class)}; it is {state.ending_class}; {where}"
    if expected.outcome and not expected.outcome.search(said):
        yield f"expected an ending with /{expected.outcome.pattern}/; {where}"


def _steps(expected: Expected, state: RunState) -> Iterator[str]:
    if not expected.steps.hold(state.step):
        steps = ", ".join(f"{r.step} {r.tool} {r.command} {r.status}" for r in state.completed) or "none"
        yield f"expected steps: {expected.steps}; there are {state.step}: {steps}"


def _model_calls(expected: Expected, state: RunState) -> Iterator[str]:
    if not expected.calls.hold(state.spent.calls):
        yield f"expected model calls: {expected.calls}; there are {state.spent.calls}"


def _gathered(expected: Expected, seen: Observed) -> Iterator[str]:
    if not expected.tasks.hold(seen.tasks):
        yield f"expected tasks of steps: {expected.tasks}; there are {seen.tasks}; {_told(seen.requests)}"
    if not expected.rounds.hold(seen.rounds):
        yield f"expected rounds: {expected.rounds}; there are {seen.rounds}; {_told(seen.requests)}"


def _children(expected: Expected, seen: Observed) -> Iterator[str]:
    ended = [child.state.status for child in seen.children if child.state]
    if not expected.children.hold(len(ended)):
        yield f"expected runs started by it: {expected.children}; there are {len(ended)}"
    if expected.children.status and not set(ended) <= set(expected.children.status):
        yield f"expected that they are {_either(expected.children.status)}; they are {', '.join(ended)}"


def _calls(expected: Expected, seen: Observed) -> Iterator[str]:
    requests = [request for run in seen.tree for request in run.requests]
    for wanted in expected.must_call:
        found = [request for request in requests if _is(request, wanted)]
        if not wanted.bounds.hold(len(found)):
            yield f"expected calls of {wanted}: {wanted.bounds}; there are {len(found)}; {_told(requests)}"
    for unwanted in expected.never_call:
        found = [request for request in requests if _is(request, unwanted)]
        if found:
            yield f"expected no call of {unwanted}; {_told(found)}"


def _happened(expected: Expected, seen: Observed) -> Iterator[str]:
    happened = happenings(seen)
    known = ", ".join(f"{what} (entry {entry})" for what, entry in happened.items()) or "nothing special"
    for wanted in expected.must_happen:
        if wanted not in happened:
            yield f"expected that this happens: {wanted}; what happened: {known}"
    for unwanted in expected.never_happen:
        if unwanted in happened:
            yield f"expected that this does not happen: {unwanted}; it did in entry {happened[unwanted]}"


def _is(request: Request, call: Call) -> bool:
    asked = request.asked
    if call.tool != asked.tool or call.command not in (None, asked.tool_command):
        return False
    if call.task is not None and not call.task.search(asked.task or ""):
        return False
    return call.when is None or call.when.search(canonical(asked.tool_payload)) is not None


def _told(requests: Sequence[Request]) -> str:
    lines = [f"{request}: {json.dumps(request.asked.tool_payload)[:200]}" for request in requests[:MOST_SHOWN]]
    more = f", and {len(requests) - MOST_SHOWN} more" if len(requests) > MOST_SHOWN else ""
    return f"the calls were: {', '.join(lines)}{more}" if lines else "no tool was called"


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(map(str, values))
