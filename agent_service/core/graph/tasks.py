"""Turns what a tool asks for into the tasks of its step, all checked before any is sent.

The parser (`schemas.continuation`) checks fields, ids, dependencies and cycles; here: offered commands, and counts.
"""

from collections.abc import Iterator

from pydantic import JsonValue

from agent_service.core.brief import Brief
from agent_service.core.graph import gathered
from agent_service.core.phases import Action
from agent_service.core.tools.acting import flaws_of_action
from agent_service.core.tools.attempts import Task
from schemas.catalog import ToolCommand, ToolOffer
from schemas.continuation import Continuation, MultiStep, PluginTask, Retrieve, RetrieveTask

ONLY = "task-1"
MAX_INPUT = 256 * 1024
"""Bytes of a task's arguments: its request must fit into a message, with what is handed on."""
HANDLE = "handle"
"""Ductile's default command."""


def drawn(
    brief: Brief, asker: Task, continuation: Continuation, number: int
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    asked = _asked(continuation)
    most = brief.limits.continuations.max_tasks
    if len(asked) > most:
        return (), (f"it asks for {len(asked)} tasks, and at most {most} are taken at once",)
    tasks = tuple(_task(brief, asker, one, place, number) for place, one in enumerate(asked, start=1))
    flaws = (f"{one.id}: {flaw}" for one, task in zip(asked, tasks, strict=True) for flaw in _flaws(brief, task))
    return tasks, tuple(flaws)


def _asked(continuation: Continuation) -> tuple[RetrieveTask | PluginTask, ...]:
    match continuation:
        case MultiStep(tasks=tasks):
            return tasks
        case Retrieve(query=query, profile=profile, reason=reason):
            return (RetrieveTask(id=ONLY, action="retrieve", query=query, profile=profile, reason=reason),)


def _task(brief: Brief, asker: Task, asked: RetrieveTask | PluginTask, place: int, number: int) -> Task:
    before = f"{asker.id}." if asker.id else ""
    profile = ""
    match asked:
        case RetrieveTask(query=query):
            profile = asked.profile or brief.limits.continuations.continuation_retrieval_profile
            action = _retrieval(brief, query, profile)
        case PluginTask():
            query, action = "", _call(brief, asker.action, asked)
    return Task(
        id=f"{before}{asked.id}",
        round=number,
        place=place,
        action=action,
        needs=tuple(f"{before}{need}" for need in asked.depends_on),
        kind=asked.action,
        query=query,
        profile=profile,
        reason=asked.reason or "",
    )


def _flaws(brief: Brief, task: Task) -> Iterator[str]:
    skill = brief.skill(task.action.tool)
    if task.kind == "retrieve" and skill is None:
        setting = "agent.continuations.retrieval_tool"
        yield f"it asks for a retrieval, and no tool {task.action.tool} is on offer ({setting})"
        return
    if not task.action.command:
        has = ", ".join(command.name for command in skill.commands) if skill else ""
        yield f"names no command of {task.action.tool}, which has: {has}"
        return
    if (size := gathered.size_of(task.action.arguments)) > MAX_INPUT:
        yield f"its input has {size} bytes, and at most {MAX_INPUT} are taken: name an artifact in its place"
    yield from flaws_of_action(brief, task.action)


def _retrieval(brief: Brief, query: str, profile: str) -> Action:
    tool, _, command = brief.limits.continuations.retrieval_tool.partition(".")
    skill = brief.skill(tool)
    reads = [one.name for one in skill.commands if one.tier == "read"] if skill else []
    named = command or next(iter(reads), "")
    return Action(tool=tool, command=named, arguments={"query": query, "profile": profile})


def _call(brief: Brief, asking: Action, asked: PluginTask) -> Action:
    skill = brief.skill(asked.plugin)
    command = asked.command or _usual(skill, asking) if skill else asked.command or HANDLE
    offered = next((one for one in skill.commands if one.name == command), None) if skill else None
    return Action(tool=asked.plugin, command=command, arguments=_arguments(offered, asked.input))


def _usual(skill: ToolOffer, asking: Action) -> str:
    names = [command.name for command in skill.commands]
    if skill.name == asking.tool:
        return asking.command
    if HANDLE in names:
        return HANDLE
    return names[0] if len(names) == 1 else ""


def _arguments(command: ToolCommand | None, given: str | dict[str, JsonValue]) -> dict[str, JsonValue]:
    if isinstance(given, dict):
        return given
    schema = command.input_schema if command else {}
    known, required = schema.get("properties"), schema.get("required")
    if isinstance(known, dict) and "input" not in known and isinstance(required, list) and len(required) == 1:
        name, field = required[0], known.get(str(required[0]))
        if isinstance(name, str) and isinstance(field, dict) and field.get("type") == "string":
            return {name: given}
    return {"input": given}
