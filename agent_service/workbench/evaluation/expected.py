"""Expectations of a scenario, and one line for each that a run does not meet. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar

import yaml
from pydantic import BeforeValidator, Field, model_validator

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.models.prompts.wording import canonical
from agent_service.models.scripted_model import Pattern
from agent_service.run.journal import Entry
from schemas import subjects
from schemas.continuation import AGAIN
from schemas.events import Envelope, ToolRequest
from schemas.fields import Closed
from schemas.values import dataclass

HERE = Path(str(resources.files("agent_service.workbench.evaluation")))
HAPPENINGS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "happenings.yaml").read_text("utf-8"))
REQUESTS = f"{subjects.TOOL_REQUEST}."
MOST_SHOWN = 5
LONGEST_REASON = 300

Happening = Annotated[str, Field(pattern=f"^({'|'.join(HAPPENINGS)})$")]
Number = Annotated[int, Field(ge=0)]


class Strict(Closed):
    """Exactly one of the fields in `one_of` must be given."""

    one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _one_is_given(self) -> "Strict":
        if self.one_of and sum(getattr(self, name) not in (None, False) for name in self.one_of) != 1:
            raise ValueError(f"needs exactly one of {', '.join(self.one_of)}")
        return self


class Bounds(Strict):
    at_least: Number = 0
    at_most: Number | None = None

    @property
    def words(self) -> str:
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"{self.at_least} to {self.at_most}" if self.at_least < self.at_most else str(self.at_most)

    @model_validator(mode="after")
    def _can_hold(self) -> "Bounds":
        if self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least is {self.at_least}, and at_most {self.at_most}: for none at all say never_call")
        return self

    def hold(self, number: int) -> bool:
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)


class CallPattern(Strict):
    """Matches calls of a tool: by command, by a pattern in the canonical JSON of the arguments, and by a pattern in the
    name of the sub-request (`task`)."""

    tool: str
    command: str | None = None
    when: Pattern | None = None
    task: Pattern | None = None

    def __str__(self) -> str:
        command = f" {self.command}" if self.command else ""
        task = f" for task /{self.task.pattern}/" if self.task else ""
        return f"{self.tool}{command}{f' with /{self.when.pattern}/' if self.when else ''}{task}"


class WantedCall(CallPattern, Bounds):
    at_least: Number = 1


class Children(Bounds):
    status: tuple[Status, ...] = ()


_OR_A_TOOL = BeforeValidator(lambda given: {"tool": given} if isinstance(given, str) else given)


class Expected(Strict):
    """Everything given must hold. `status` and `class` list the allowed values: a run that rests and is not resumed is
    `paused`, and only a run that is not done has a class. `outcome` is searched for in the outcome of a done run, else
    in the reason. `calls` counts replies of the model. `tasks` counts sub-requests of steps, except repeated questions
    to a tool, which `rounds` counts. `never_say` texts may occur in no tool argument and in no event of the agent."""

    status: tuple[Status, ...] = ()
    ending_class: Annotated[tuple[str, ...], Field(alias="class")] = ()
    outcome: Pattern | None = None
    steps: Bounds = Bounds()
    calls: Bounds = Bounds()
    tasks: Bounds = Bounds()
    rounds: Bounds = Bounds()
    children: Children = Children()
    must_call: tuple[Annotated[WantedCall, _OR_A_TOOL], ...] = ()
    never_call: tuple[Annotated[CallPattern, _OR_A_TOOL], ...] = ()
    never_say: tuple[Annotated[str, Field(min_length=4)], ...] = ()
    must_happen: tuple[Happening, ...] = ()
    never_happen: tuple[Happening, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "Expected":
        if not self.model_fields_set:
            raise ValueError("expects nothing: name at least a status")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMessage:
    subject: str
    key: str
    body: bytes

    @property
    def run_id(self) -> str:
        return str(json.loads(self.body)["payload"].get("run_id"))


@dataclass(frozen=True, kw_only=True)
class ObservedRun:
    """A run after it was played. `broken` says why it could not be played to its end."""

    state: RunState | None
    entries: Sequence[Entry]
    published: Sequence[PublishedMessage]
    broken: str = ""
    children: tuple["ObservedRun", ...] = ()

    @cached_property
    def requests(self) -> tuple[ToolRequest, ...]:
        sent = (one.body for one in self.published if one.subject.startswith(REQUESTS))
        return tuple(Envelope[ToolRequest].model_validate_json(body).payload for body in sent)

    @property
    def tree(self) -> Iterator["ObservedRun"]:
        yield self
        for child in self.children:
            yield from child.tree

    def tasks(self, *, again: bool) -> int:
        """Counts sub-requests that repeat a question to a tool (`again`), or all others."""
        named = {(one.step, one.task, one.round) for one in self.requests if one.task}
        return sum((str(task).rpartition(".")[2] == AGAIN) is again for _, task, _ in named)


def ending_text(state: RunState) -> str:
    """Returns the outcome of a done run, else the reason why it ended or rests."""
    return str(state.reason or state.summary)


def unmet(expected: Expected, seen: ObservedRun) -> list[str]:
    if seen.broken or seen.state is None:
        return [seen.broken or "a run was expected; the wake was refused"]
    checks = (_ending, _numbers, _calls, _secrets, _incidents)
    return [line for check in checks for line in check(expected, seen, seen.state)]


def _ending(expected: Expected, _: ObservedRun, state: RunState) -> Iterator[str]:
    ending = ending_text(state)
    where = f"the last entry, {state.version}, says: {ending[:LONGEST_REASON]!r}"
    if expected.status and state.status not in expected.status:
        yield f"expected status {' or '.join(expected.status)}; it is {state.status}; {where}"
    if expected.ending_class and state.status is not Status.DONE and state.ending_class not in expected.ending_class:
        yield f"expected class {' or '.join(expected.ending_class)}; it is {state.ending_class}; {where}"
    if expected.outcome and not expected.outcome.search(ending):
        yield f"expected an ending with /{expected.outcome.pattern}/; {where}"


def _numbers(expected: Expected, seen: ObservedRun, state: RunState) -> Iterator[str]:
    steps = ", ".join(f"{r.step} {r.tool} {r.command} {r.status}" for r in state.completed) or "none"
    ended, wanted = [child.state.status for child in seen.children if child.state], expected.children
    for what, bounds, number, more in (
        ("steps", expected.steps, state.step, f": {steps}"),
        ("model calls", expected.calls, state.spent.calls, ""),
        ("tasks of steps", expected.tasks, seen.tasks(again=False), f"; {_list_calls(seen.requests)}"),
        ("rounds", expected.rounds, seen.tasks(again=True), f"; {_list_calls(seen.requests)}"),
        ("runs started by it", wanted, len(ended), ""),
    ):
        if not bounds.hold(number):
            yield f"expected {what}: {bounds.words}; there are {number}{more}"
    if wanted.status and not set(ended) <= set(wanted.status):
        yield f"expected that they are {' or '.join(wanted.status)}; they are {', '.join(ended)}"


def _calls(expected: Expected, seen: ObservedRun, _: RunState) -> Iterator[str]:
    requests = [request for run in seen.tree for request in run.requests]
    for wanted in expected.must_call:
        number = sum(_matches(request, wanted) for request in requests)
        if not wanted.hold(number):
            yield f"expected calls of {wanted}: {wanted.words}; there are {number}; {_list_calls(requests)}"
    for unwanted in expected.never_call:
        if found := [request for request in requests if _matches(request, unwanted)]:
            yield f"expected no call of {unwanted}; {_list_calls(found)}"


def _matches(request: ToolRequest, call: CallPattern) -> bool:
    if call.tool != request.tool or call.command not in (None, request.tool_command):
        return False
    if call.task is not None and not call.task.search(request.task or ""):
        return False
    return call.when is None or call.when.search(canonical(request.tool_payload)) is not None


def _secrets(expected: Expected, seen: ObservedRun, _: RunState) -> Iterator[str]:
    published = (message for run in seen.tree for message in run.published)
    for message in (one for one in published if one.subject.startswith((REQUESTS, "agent."))):
        for secret in expected.never_say:
            if any(one in message.body.decode() for one in (secret, json.dumps(secret, ensure_ascii=False)[1:-1])):
                yield f"never say: {secret!r} is in {message.subject} (key {message.key})"


def _incidents(expected: Expected, seen: ObservedRun, _: RunState) -> Iterator[str]:
    found: dict[str, int] = {}
    """First entry by name, of the run or else of its children."""
    for entry in (entry for run in seen.tree for entry in run.entries):
        event, facts = json.loads(entry.event), json.loads(entry.facts)["facts"]
        for name, sign in HAPPENINGS.items():
            fitting = sum(_fits(sign.get("fact", {}), fact) for fact in facts)
            if _fits(sign.get("event", {}), event) and fitting >= sign.get("times", 1):
                found.setdefault(name, entry.seq)
    known = ", ".join(f"{what} (entry {entry})" for what, entry in found.items()) or "nothing special"
    for wanted in set(expected.must_happen).difference(found):
        yield f"expected that this happens: {wanted}; what happened: {known}"
    for unwanted in found.keys() & set(expected.never_happen):
        yield f"expected that this does not happen: {unwanted}; it did in entry {found[unwanted]}"


def _fits(pattern: Any, value: Any) -> bool:
    match pattern, value:
        case dict(), dict():
            return all(name in value and _fits(inner, value[name]) for name, inner in pattern.items())
        case list(), list():
            return all(any(_fits(inner, one) for one in value) for inner in pattern)
        case str(), _:
            return re.fullmatch(pattern, str(value)) is not None
    return False


def _list_calls(requests: Sequence[ToolRequest]) -> str:
    lines = [f"{_named(request)}: {json.dumps(request.tool_payload)[:200]}" for request in requests[:MOST_SHOWN]]
    more = f", and {len(requests) - MOST_SHOWN} more" if len(requests) > MOST_SHOWN else ""
    return f"the calls were: {', '.join(lines)}{more}" if lines else "no tool was called"


def _named(request: ToolRequest) -> str:
    task = f" {request.task} of round {request.round}" if request.task else ""
    return f"step {request.step}{task} attempt {request.attempt} ({request.tool} {request.tool_command})"
