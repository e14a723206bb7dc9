"""What continuations add to the cues: a tool asks for something first, and what it asked for comes.

A request is named as on the bus: `""` for the step's own, `task-1`, `again`, `task-1.again`; `round` only where it is
not the one that is open.
"""

import json
from typing import Any

from agent_service.core.brief import Continuations
from agent_service.core.effects import Publish
from agent_service.core.events import Event, ToolReturned
from schemas import subjects
from schemas.events import ToolError, ToolResult
from tests.core.cues import BROWSE, FETCH, LEDGER, POST, SAVE, frames, plans, queued, started, tool
from tests.core.script import Cue, Script

SHELF = tool("knowledge", route="shelf")
LOOK = tool("look", route="window")
SKILLS = (FETCH, POST, SAVE, BROWSE, LEDGER, SHELF, LOOK)


def a_task(name: str, plugin: str = "", after: tuple[str, ...] = (), **arguments: Any) -> dict[str, Any]:
    """One task of a continuation: of a `plugin`, or else a retrieval."""
    asked: dict[str, Any] = {"action": "retrieve", "query": name}
    if plugin:
        asked = {"action": "plugin", "plugin": plugin, "input": arguments or {"name": name}}
    return {"id": name, **asked, "depends_on": list(after)}


def multi_step(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"action": "multi-step", "tasks": list(tasks)}


def retrieve(query: str = "more") -> dict[str, Any]:
    return {"action": "retrieve", "query": query}


def a_gathering_run(*tasks: dict[str, Any], first: str = "fetch", **limits: Any) -> Script:
    """The first step's tool has asked for these tasks, or for one retrieval."""
    run = queued(**limits) >> started(SKILLS) >> frames() >> plans(first)
    return run >> continues(multi_step(*tasks) if tasks else retrieve())


def budget(**numbers: Any) -> dict[str, Any]:
    """The limits of a run with this budget for continuations."""
    return {"continuations": Continuations(**numbers)}


def comes(
    task: str = "",
    *,
    round: int | None = None,  # noqa: A002 - the word of the wire
    status: str = "ok",
    place: str = "",
    **fields: Any,
) -> Cue:
    """A result of that request comes: of the open one, unless `round` and the fields say otherwise; None leaves out."""

    def cue(script: Script) -> Event:
        pendings = (p for p in script.state.pendings if p.task == task and round in (None, p.round))
        pending = next(pendings, None)
        told: dict[str, Any] = {"step": script.state.step, "tool": "fetch", "attempt": 1}
        if pending:
            told = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
        if task:
            told |= {"task": task, "round": round or (pending.round if pending else 1)}
        brought = {"result": {"summary": f"result of {task or 'the step'}"}} if status == "ok" else {}
        said = {"run_id": script.state.run_id, "status": status, "completed_at": script.now, **told, **brought}
        payload = {name: value for name, value in (said | fields).items() if value is not None}
        return ToolReturned(at=script.now, result=ToolResult.model_validate(payload), place=place)

    return cue


def continues(asked: dict[str, Any], task: str = "", **names: Any) -> Cue:
    """That request is answered with a continuation."""
    return comes(task, status="continuation", result={"continuation": asked}, **names)


def fails(task: str = "", error_class: str = "no_such_thing", *, retryable: bool = False, **names: Any) -> Cue:
    error = ToolError(error_class=error_class, message="it broke", retryable=retryable)
    return comes(task, status="error", error=error.model_dump(by_alias=True), **names)


def asked(run: Script) -> list[str]:
    """The requests that the last event led to, as `tool task:round`; the step's own as its tool alone."""
    bodies = (e.body for e in run.story[-1].effects if isinstance(e, Publish) and _is_request(e))
    return [_named(json.loads(body)["payload"]) for body in bodies]


def _is_request(effect: Publish) -> bool:
    return effect.subject.startswith(subjects.TOOL_REQUEST)


def _named(payload: dict[str, Any]) -> str:
    attempt = "" if payload["attempt"] == 1 else f" attempt {payload['attempt']}"
    return f"{payload['tool']} {payload.get('task', '')}:{payload.get('round', '')}{attempt}".replace(" :", "")


def told(run: Script) -> list[tuple[str, int, str]]:
    """The evidence of the one request that the last event led to: task, round and what came of each."""
    (body,) = (e.body for e in run.story[-1].effects if isinstance(e, Publish) and _is_request(e))
    evidence = json.loads(body)["payload"]["tool_payload"]["evidence"]
    return [(item["task"], item["round"], (item.get("error") or {}).get("class", "ok")) for item in evidence]
