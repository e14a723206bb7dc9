"""Whether a run is what its scenario expects: a line for everything that is not, with what happened and where. Pure."""

import json
from collections.abc import Iterator

from agent_service.core.state import RunState
from agent_service.core.waiting import Status
from agent_service.workbench.evaluation.expected import Call, Expected
from agent_service.workbench.evaluation.happenings import happenings
from agent_service.workbench.evaluation.observed import Observed, Request
from agent_service.workbench.evaluation.played_gateway import canonical

MOST_SHOWN = 5
LONGEST_REASON = 300


def unmet(expected: Expected, seen: Observed) -> list[str]:
    """What was expected and is not so."""
    if seen.broken:
        return [seen.broken]
    if seen.state is None:
        return ["a run was expected; the wake was refused"]
    return [
        *_ending(expected, seen.state),
        *_steps(expected, seen.state),
        *_calls(expected, seen),
        *_happened(expected, seen),
    ]


def said_at_the_end(state: RunState) -> str:
    """The outcome of a run that is done, else why it ended or rests."""
    return state.outcome if state.status is Status.DONE else state.reason or state.summary


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


def _calls(expected: Expected, seen: Observed) -> Iterator[str]:
    for wanted in expected.must_call:
        found = [request for request in seen.requests if _is(request, wanted)]
        if not wanted.bounds.hold(len(found)):
            yield f"expected calls of {wanted}: {wanted.bounds}; there are {len(found)}; {_told(seen.requests)}"
    for unwanted in expected.never_call:
        found = [request for request in seen.requests if _is(request, unwanted)]
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
    return call.when is None or call.when.search(canonical(asked.tool_payload)) is not None


def _told(requests: tuple[Request, ...] | list[Request]) -> str:
    lines = [
        f"step {r.asked.step}: {r.asked.tool} {r.asked.tool_command} {json.dumps(r.asked.tool_payload)[:200]}"
        for r in requests[:MOST_SHOWN]
    ]
    more = f", and {len(requests) - MOST_SHOWN} more" if len(requests) > MOST_SHOWN else ""
    return f"the calls were: {', '.join(lines)}{more}" if lines else "no tool was called"


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(map(str, values))
