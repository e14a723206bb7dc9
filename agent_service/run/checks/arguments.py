"""Checks replies of models by length and command schemas, and the arguments that a continuation has for other tools."""

from collections.abc import Iterator

from agent_service.core.brief import Brief
from agent_service.core.continuing import drawn
from agent_service.core.phases import Action
from agent_service.core.state import RunState
from agent_service.core.waiting import Pending
from schemas.argument_schemas import LONGEST_FLAW, argument_flaws, validator_of
from schemas.continuation import ContinuationInvalid, read
from schemas.events import ToolResult
from schemas.values import replace

MOST_BYTES = 128 * 1024
"""Bytes of a reply: a request must fit into a message (1 MiB), and the journal is kept for ever."""
MOST_FLAWS = 8


def flaws_of_arguments(brief: Brief, action: Action) -> tuple[str, ...]:
    command = brief.command(action)
    if command is None or not command.input_schema:
        return ()
    try:
        validator = validator_of(command.input_schema)
    except ValueError as error:
        return (f"the schema of {action.tool} cannot be used: {error}"[:LONGEST_FLAW],)
    return argument_flaws(validator, action.arguments, most=MOST_FLAWS, whole="arguments")


EVIDENCE = "evidence"


def unfit(state: RunState, result: ToolResult) -> tuple[str, ...]:
    """The flaws of a continuation's arguments; the core tells those of an unreadable one."""
    asking = next((one for one in state.pendings if _is_of(one, result)), None)
    if asking is None:
        return ()
    try:
        continuation = read(result.result)
    except ContinuationInvalid:
        return ()
    asked, flaws = drawn(state, asking, continuation, number=1)
    return () if flaws else tuple(flaw for task in asked for flaw in _flaws(state.brief, task))


def _is_of(pending: Pending, result: ToolResult) -> bool:
    return (pending.step, pending.action.tool) == (result.step, result.tool) and pending.task == (result.task or "")


def _flaws(brief: Brief, task: Pending) -> Iterator[str]:
    for flaw in flaws_of_arguments(brief, _with_evidence(brief, task)):
        yield f"{task.id.rpartition('.')[2]}: {flaw}"


def _with_evidence(brief: Brief, task: Pending) -> Action:
    command = brief.command(task.action)
    known = command.input_schema.get("properties") if command else None
    if not task.needs or not isinstance(known, dict) or EVIDENCE not in known:
        return task.action
    return replace(task.action, arguments=task.action.arguments | {EVIDENCE: []})
