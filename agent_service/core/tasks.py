"""What a tool asks for before it answers, as tasks of its step: checked, scheduled, and given their evidence.

The parser (`schemas.continuation`) checks fields, ids, dependencies and cycles; here: offered commands, and counts. A
task is sent once its dependencies came and there is room; its asker is asked again once all came. Refusals, approvals
and later words of people hold as for a plan.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from agent_service.core import approving, finishing, grants
from agent_service.core.acting import flaws_of_action
from agent_service.core.brief import Brief, Continuations
from agent_service.core.in_flight import graph_of
from agent_service.core.phases import Action
from agent_service.core.state import RunState
from agent_service.core.waiting import Evidence, Name, Pending, Status, Task, TaskGraph, asker_of
from agent_service.sentences import Text, say
from schemas.catalog import ToolCommand, ToolOffer
from schemas.clipping import clipped
from schemas.continuation import Continuation, MultiStep, PluginTask, Retrieve, RetrieveTask
from schemas.events import MAX_MESSAGE_BYTES
from schemas.values import dataclass, replace

ONLY = "task-1"
MAX_INPUT = 256 * 1024
"""Bytes of a task's arguments: its request must fit into a message, with what is handed on."""
HANDLE = "handle"
"""Ductile's default command."""


def drawn(
    brief: Brief, asker: Task, continuation: Continuation, number: int
) -> tuple[tuple[Task, ...], tuple[Text, ...]]:
    asked = _asked(continuation)
    most = brief.limits.continuations.max_tasks
    if len(asked) > most:
        return (), (say("too_many_tasks", asked=len(asked), most=most),)
    tasks = tuple(_task(brief, asker, one, place, number) for place, one in enumerate(asked, start=1))
    flaws = (
        say("flaw_of_task", task=one.id, flaw=flaw)
        for one, task in zip(asked, tasks, strict=True)
        for flaw in _flaws(brief, task)
    )
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


def _flaws(brief: Brief, task: Task) -> Iterator[Text]:
    skill = brief.skill(task.action.tool)
    if task.kind == "retrieve" and skill is None:
        yield say("no_retrieval", tool=task.action.tool)
        return
    if not task.action.command:
        has = ", ".join(command.name for command in skill.commands) if skill else ""
        yield say("no_command", tool=task.action.tool, commands=has)
        return
    if (size := size_of(task.action.arguments)) > MAX_INPUT:
        yield say("input_too_large", size=size, most=MAX_INPUT)
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


MAX_KEPT, MAX_HANDED, LEAST_HANDED = 32_000, 256_000, 200
"""Bytes of JSON: of one kept result, of all handed on together, and of each of these at least. A request must fit into
a message, where a control character takes six bytes.
"""
NAMED, MAX_NAMED = ("artifact_path", "content_type", "class"), 200
MAX_SENT = MAX_MESSAGE_BYTES - 16 * 1024
"""Bytes of a request's arguments; the rest of its message has room beside them."""
MAX_TOLD = 600
"""Bytes of one result of a step that may gather no more."""


def as_sent(state: RunState, pending: Pending) -> Action:
    graph = graph_of(state.waiting, pending.step) if pending.task else None
    task = task_of(graph, pending.task) if graph else None
    if task is None:
        return pending.action
    request, granted = (pending.task, pending.round), state.brief.limits.continuations
    return replace(pending.action, given=given(state.evidence, pending.step, task, request, granted))


def task_of(graph: TaskGraph, name: str) -> Task | None:
    return next((task for task in graph.tasks if name in (task.id, task.again)), None)


def given(
    evidence: Sequence[Evidence], step: int, task: Task, request: tuple[str, int], granted: Continuations
) -> dict[str, JsonValue]:
    """What a request gets beside its arguments: results of its tasks, or dependencies. `request`: name and round."""
    name, asked_in = request
    if name != task.again:
        needed = [one for one in evidence if one.name in {(step, need, task.round) for need in task.needs}]
        return {"evidence": _handed(needed)} if task.needs else {}
    asked = [one for one in evidence if one.step == step and asker_of(one.task) == task.id]
    mine = [one for one in asked if task.round < one.round < asked_in]
    used = asked_in - 1
    left = max(0, granted.max_plugin_continuations - used)
    return {"evidence": _handed(mine), "continuations": used, "continuations_left": left}


def kept(output: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return _bounded(output, MAX_KEPT)


def told(state: RunState, step: int) -> list[JsonValue]:
    return [_in_short(one) for one in _in_order(one for one in state.evidence if one.step == step)]


def _in_order(some: Iterable[Evidence]) -> list[Evidence]:
    return sorted(some, key=lambda one: (one.round, one.place))


def _handed(some: Sequence[Evidence]) -> list[JsonValue]:
    share = max(LEAST_HANDED, MAX_HANDED // max(1, len(some)))
    return [_item(one, share) for one in _in_order(some)]


def _item(one: Evidence, share: int) -> dict[str, JsonValue]:
    item: dict[str, JsonValue] = {"task": one.task.rpartition(".")[2], "round": one.round, "action": one.kind}
    if one.kind == "retrieve":
        item |= {"query": _shortened(one.query, max(LEAST_HANDED, share // 4)), "profile": one.profile}
    item |= {"tool": one.tool, "status": one.status}
    return item | {"result" if one.status == "ok" else "error": _bounded(one.output, share)}


def _bounded(output: dict[str, JsonValue], most: int) -> dict[str, JsonValue]:
    if size_of(output) <= most:
        return output
    named: dict[str, JsonValue] = {
        name: told for name in NAMED if isinstance(told := output.get(name), str) and len(told) <= MAX_NAMED
    }
    words = output.get("summary") or output.get("message") or output.get("excerpt")
    text = words if isinstance(words, str) else json.dumps(output, ensure_ascii=False)
    return named | {"message" if "class" in output else "summary": _shortened(text, most)}


def _shortened(text: str, most: int) -> str:
    length = min(len(text), most)
    while (size := size_of(text[:length])) > most + 2:  # its quotation marks
        length = length * most // size
    return clipped(text, length)


def size_of(value: JsonValue) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _in_short(one: Evidence) -> dict[str, JsonValue]:
    asked = f"{one.tool} {one.command}" + (f": {one.query}" if one.query else "")
    output = _bounded(one.output, MAX_TOLD)
    return {"task": one.task, "round": one.round, "asked": asked, "status": one.status, "output": output}


OVERRULED = "overruled"
UNHEARD = say("task_void")


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that nothing has to come before. `known_as`: step, name and round; `action`: as it is sent."""

    graph: TaskGraph
    task: Task
    known_as: Name
    action: Action


def next_of(state: RunState, passed: set[Name], *, begins: bool) -> Ready | None:
    """The first request, in the order of steps and tasks, that can be sent or has to fail now, and is not in `passed`.
    `begins`: whether anything may be sent. Requests without room are skipped: with a hundred tasks they are most.
    """
    sent = {pending.name[:2] for pending in state.pendings}
    came = {one.name: one.status for one in state.evidence}
    for graph in state.graphs:
        for task in () if graph.stopped else graph.tasks:
            name = _name_of(graph, task)
            if name[:2] in sent or name in passed or not _nothing_before(graph, task, came):
                continue
            if _has_failed_before(graph, task, came) or (begins and _has_room(state, task.action.tool)):
                return ready_for(state, graph, task, name)
    return None


def _name_of(graph: TaskGraph, task: Task) -> Name:
    asked_in = graph.round + 1 if task.asks else task.round
    return graph.step, task.again if task.asks else task.id, asked_in


def _nothing_before(graph: TaskGraph, task: Task, came: Mapping[Name, str]) -> bool:
    if task.asks:
        return not any(other.id and asker_of(other.id) == task.id for other in graph.tasks)
    if not task.id:  # the step's own request, which was sent before there was anything to gather
        return False
    needed = _needed(graph, task, came)
    return all(needed) or "error" in needed


def _has_failed_before(graph: TaskGraph, task: Task, came: Mapping[Name, str]) -> bool:
    return not task.asks and "error" in _needed(graph, task, came)


def _needed(graph: TaskGraph, task: Task, came: Mapping[Name, str]) -> list[str | None]:
    return [came.get((graph.step, need, task.round)) for need in task.needs]


def ready_for(state: RunState, graph: TaskGraph, task: Task, name: Name) -> Ready:
    handed_on = given(state.evidence, graph.step, task, name[1:], state.brief.limits.continuations)
    return Ready(graph, task, name, replace(task.action, given=handed_on))


def flaw_of(state: RunState, ready: Ready) -> tuple[str, Text] | None:
    asked_for = (one for one in state.evidence if one.step == ready.graph.step and one.round == ready.task.round)
    failed = [one.task for one in asked_for if one.status == "error" and one.task in ready.task.needs]
    if failed and not ready.task.asks:
        return "dependency", say("dependency_failed", tasks=", ".join(failed))
    if why := _lacking(state, ready):
        return "budget", why
    if (size := size_of(ready.action.payload)) > MAX_SENT:
        return "too_large", say("request_too_large", size=size, most=MAX_SENT)
    if flaws := (*approving.flaws_of(state, ready.action), *finishing.flaws_of_doubt(state, ready.action)):
        return "not_approved", say("all_of", flaws=flaws)
    command = state.brief.command(ready.action)
    writes = command is None or command.tier == "write"
    return (OVERRULED, UNHEARD) if writes and is_unheard(state, ready.graph) else None


def _lacking(state: RunState, ready: Ready) -> Text:
    if not grants.needs_one(state.brief, ready.task.action.tool):
        return ""
    return grants.lacking(state, (ready.task.action,), among=grants.to_come(state, ready.graph))


def may_begin(state: RunState) -> bool:
    return state.status is not Status.PAUSED and state.updated_at < state.brief.limits.deadline_at


def _has_room(state: RunState, tool: str) -> bool:
    granted, busy = state.brief.limits.continuations, [one.action.tool for one in state.pendings]
    most = min(granted.parallel_per_tool, grants.most_at_once(state.brief, tool))
    return len(busy) < granted.parallel and busy.count(tool) < most


def is_unheard(state: RunState, graph: TaskGraph) -> bool:
    return state.words > max(state.shown, graph.words)
