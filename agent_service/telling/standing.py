"""Where a run stands, in one sentence of Markdown: what it waits for, or how it ended. Pure."""

from agent_service.core.state import RunState
from agent_service.core.waiting import (
    ForModel,
    ForTool,
    ModelRetry,
    Pending,
    Status,
    ToolRetry,
    under_way,
)
from agent_service.telling.pages.markdown import code, inline
from agent_service.telling.plain import instant
from agent_service.telling.sayings import call_of
from agent_service.telling.steps import executor_of


def standing(run: RunState) -> str:
    if run.status is Status.QUEUED:
        return "**Queued**: accepted, not started."
    if run.final and run.ended_at:
        why = "" if run.status is Status.DONE else f" ({code(run.ending_class)}): {inline(run.reason)}"
        return f"**Ended: {run.status}** at {instant(run.ended_at)}{why}."
    if run.status is Status.PAUSED:
        return f"**Paused** ({code(run.ending_class)}), waiting for a person: {inline(run.reason)}"
    return f"**Running**, waiting for {waited_for(run)}."


def waited_for(run: RunState) -> str:
    match under_way(run.waiting):
        case ForModel(asking=asking):
            return f"the model to {asking.phase} (call {asking.call})"
        case ModelRetry(asking=asking, retry_at=at):
            return f"the time to ask the model again for {asking.phase}: {instant(at)}"
        case ForTool(pending=pending):
            return _result(run, pending)
        case ToolRetry(pending=pending, retry_at=at):
            return f"the time to send {_attempt(pending)}: {instant(at)}"
    return "nothing"


def _attempt(pending: Pending) -> str:
    return f"step {pending.step}, {code(call_of(pending.action))}, attempt {pending.attempt}"


def _result(run: RunState, pending: Pending) -> str:
    executor = executor_of(run, pending)
    whom = f"{code(executor)}, route {code(pending.route)}" if executor else f"route {code(pending.route)}"
    asked, due = instant(pending.requested_at), instant(pending.deadline_at)
    return f"the result of {_attempt(pending)}, asked of {whom} at {asked}, due by {due}"
