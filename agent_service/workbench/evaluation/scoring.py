"""A run as it was seen, and a line for everything in it that is not as a scenario expects. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Self

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.models.prompts.templating import canonical
from agent_service.run.journal import Entry
from agent_service.workbench.evaluation.expected import HAPPENINGS, Call, Expected
from schemas import subjects
from schemas.continuation import AGAIN
from schemas.events import Envelope, ToolRequest
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    at: datetime
    subject: str
    key: str
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)["payload"]
        return payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    at: datetime
    route: str
    asked: ToolRequest

    @classmethod
    def of(cls, said: Said) -> Self:
        asked = Envelope[ToolRequest].model_validate_json(said.body).payload
        return cls(at=said.at, route=said.subject.rsplit(".", 1)[1], asked=asked)

    def __str__(self) -> str:
        asked = self.asked
        task = f" {asked.task} of round {asked.round}" if asked.task else ""
        return f"step {asked.step}{task} attempt {asked.attempt} ({asked.tool} {asked.tool_command})"

    @property
    def task(self) -> str:
        return f"{self.asked.step} {self.asked.task} {self.asked.round}" if self.asked.task else ""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One run, as it was seen. `broken`: why it could not be played to its end."""

    state: RunState | None
    entries: Sequence[Entry]
    said: Sequence[Said]
    broken: str = ""
    children: tuple["Observed", ...] = ()

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        return tuple(Request.of(said) for said in self.said if said.subject.startswith(f"{subjects.TOOL_REQUEST}."))

    @property
    def tree(self) -> Iterator["Observed"]:
        yield self
        for child in self.children:
            yield from child.tree

    def tasks(self, *, again: bool) -> int:
        """How many sub-requests its steps made: those that ask a tool again, or all others."""
        named = {request.task for request in self.requests if request.task}
        return sum((name.split()[1].rpartition(".")[2] == AGAIN) is again for name in named)


def happened(seen: Observed) -> dict[str, int]:
    """What happened, each with its first entry's number: in the run, else in its children."""
    found: dict[str, int] = {}
    for entry in (entry for run in seen.tree for entry in run.entries):
        event, facts = json.loads(entry.event), json.loads(entry.facts)["facts"]
        for name, sign in HAPPENINGS.items():
            fitting = sum(_fits(sign.get("fact", {}), fact) for fact in facts)
            if _fits(sign.get("event", {}), event) and fitting >= sign.get("times", 1):
                found.setdefault(name, entry.seq)
    return found


def _fits(pattern: Any, value: Any) -> bool:
    match pattern, value:
        case dict(), dict():
            return all(name in value and _fits(inner, value[name]) for name, inner in pattern.items())
        case list(), list():
            return all(any(_fits(inner, one) for one in value) for inner in pattern)
        case str(), _:
            return re.fullmatch(pattern, str(value)) is not None
    return False


MOST_SHOWN = 5
LONGEST_REASON = 300


def unmet(expected: Expected, seen: Observed) -> list[str]:
    if seen.broken:
        return [seen.broken]
    if seen.state is None:
        return ["a run was expected; the wake was refused"]
    checks = (_children, _calls, _said, _happened)
    lines = (*_ending(expected, seen.state), *_numbers(expected, seen, seen.state))
    return [*lines, *(line for check in checks for line in check(expected, seen))]


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


def _numbers(expected: Expected, seen: Observed, state: RunState) -> Iterator[str]:
    steps = ", ".join(f"{r.step} {r.tool} {r.command} {r.status}" for r in state.completed) or "none"
    for what, bounds, number, more in (
        ("steps", expected.steps, state.step, f": {steps}"),
        ("model calls", expected.calls, state.spent.calls, ""),
        ("tasks of steps", expected.tasks, seen.tasks(again=False), f"; {_told(seen.requests)}"),
        ("rounds", expected.rounds, seen.tasks(again=True), f"; {_told(seen.requests)}"),
    ):
        if not bounds.hold(number):
            yield f"expected {what}: {bounds.words}; there are {number}{more}"


def _children(expected: Expected, seen: Observed) -> Iterator[str]:
    ended, wanted = [child.state.status for child in seen.children if child.state], expected.children
    if not wanted.hold(len(ended)):
        yield f"expected runs started by it: {wanted.words}; there are {len(ended)}"
    if wanted.status and not set(ended) <= set(wanted.status):
        yield f"expected that they are {_either(wanted.status)}; they are {', '.join(ended)}"


def _calls(expected: Expected, seen: Observed) -> Iterator[str]:
    requests = [request for run in seen.tree for request in run.requests]
    for wanted in expected.must_call:
        number = sum(_is(request, wanted) for request in requests)
        if not wanted.hold(number):
            yield f"expected calls of {wanted}: {wanted.words}; there are {number}; {_told(requests)}"
    for unwanted in expected.never_call:
        if found := [request for request in requests if _is(request, unwanted)]:
            yield f"expected no call of {unwanted}; {_told(found)}"


def _is(request: Request, call: Call) -> bool:
    asked = request.asked
    if call.tool != asked.tool or call.command not in (None, asked.tool_command):
        return False
    if call.task is not None and not call.task.search(asked.task or ""):
        return False
    return call.when is None or call.when.search(canonical(asked.tool_payload)) is not None


def _said(expected: Expected, seen: Observed) -> Iterator[str]:
    for said in (said for run in seen.tree for said in run.said):
        ours = said.subject.startswith((f"{subjects.TOOL_REQUEST}.", "agent."))
        for secret in expected.never_say if ours else ():
            if secret in said.body.decode():
                yield f"never say: {secret!r} is in {said.subject} (key {said.key})"


def _happened(expected: Expected, seen: Observed) -> Iterator[str]:
    found = happened(seen)
    known = ", ".join(f"{what} (entry {entry})" for what, entry in found.items()) or "nothing special"
    for wanted in set(expected.must_happen).difference(found):
        yield f"expected that this happens: {wanted}; what happened: {known}"
    for unwanted in found.keys() & set(expected.never_happen):
        yield f"expected that this does not happen: {unwanted}; it did in entry {found[unwanted]}"


def _told(requests: Sequence[Request]) -> str:
    lines = [f"{request}: {json.dumps(request.asked.tool_payload)[:200]}" for request in requests[:MOST_SHOWN]]
    more = f", and {len(requests) - MOST_SHOWN} more" if len(requests) > MOST_SHOWN else ""
    return f"the calls were: {', '.join(lines)}{more}" if lines else "no tool was called"


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(map(str, values))
