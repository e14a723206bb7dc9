"""Whether what a model replied can be used: its length, and its arguments by the JSON Schemas of their commands.

Whether what a tool asks for fits the tools that it asks: the arguments of its tasks, by the schemas of commands.
"""

from collections.abc import Iterator

from agent_service.core.brief import Brief
from agent_service.core.graph.tasks import drawn
from agent_service.core.phases import Action
from agent_service.core.state import RunState, replace
from agent_service.core.tools.attempts import Pending, Task
from schemas.argument_schemas import LONGEST_FLAW, argument_flaws, validator_of
from schemas.continuation import ContinuationInvalid, read
from schemas.events import ToolResult

MOST_BYTES = 128 * 1024
"""Of one reply: a request has to fit into a message of the bus (1 MiB), and the journal is kept for ever."""
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
    """What is wrong with the arguments that a continuation has for others; nothing of any other result, and of one that
    cannot be read, of which the core says what is wrong."""
    asking = next((one for one in state.pendings if _is_of(one, result)), None)
    if asking is None:
        return ()
    try:
        continuation = read(result.result)
    except ContinuationInvalid:
        return ()
    asked, flaws = drawn(state.brief, Task(id="", round=0, place=0, action=asking.action), continuation, number=1)
    return () if flaws else tuple(flaw for task in asked for flaw in _flaws(state.brief, task))


def _is_of(pending: Pending, result: ToolResult) -> bool:
    return (pending.step, pending.action.tool) == (result.step, result.tool) and pending.task == (result.task or "")


def _flaws(brief: Brief, task: Task) -> Iterator[str]:
    for flaw in flaws_of_arguments(brief, _with_evidence(brief, task)):
        yield f"{task.id}: {flaw}"


def _with_evidence(brief: Brief, task: Task) -> Action:
    command = brief.command(task.action)
    known = command.input_schema.get("properties") if command else None
    if not task.needs or not isinstance(known, dict) or EVIDENCE not in known:
        return task.action
    return replace(task.action, arguments=task.action.arguments | {EVIDENCE: []})
