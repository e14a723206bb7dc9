"""Continuations: a tool asks for tasks of its step before it can answer, gets their results, and is asked again.

Each task is sent once, after its dependencies; a failed task fails only its dependents. The rules of a plan hold for
each task; a paused run sends nothing. A step over its limits waits only for requests that may write, and ends with
status `budget`.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core import acting, asking, limits, notes, planning
from agent_service.core.brief import Brief, Continuations
from agent_service.core.facts import RequestDropped, RequestSent, TasksAsked
from agent_service.core.phases import Action, Plan
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import (
    AGAIN,
    Acting,
    Graph,
    Pending,
    RequestRef,
    Status,
    TaskResult,
    acting_of,
    asker_id,
    with_requests,
    without_request,
)
from agent_service.sentences import Text, say
from schemas.bounded import clipped
from schemas.catalog import ToolCommand
from schemas.continuation import (
    Continuation,
    ContinuationInvalid,
    MultiStep,
    PluginTask,
    RetrieveTask,
    read_continuation,
)
from schemas.events import MAX_MESSAGE_BYTES, ToolError, ToolResult
from schemas.values import replace

HANDLE = "handle"
"""Ductile's default command."""
MAX_SUMMARY, MAX_REASON = 200, 4000
MAX_KEPT, MAX_HANDED, LEAST_HANDED = 32_000, 256_000, 20
"""Characters of a stored result; bytes of all results in a request; characters of each of them at least."""
MAX_SENT = MAX_MESSAGE_BYTES - 16 * 1024
"""Bytes of a request's arguments; the rest of the message needs its own."""
MAX_GATHERED = 600
"""Characters of each result that the model gets when a step reaches its limits."""
OVERRULED = "overruled", say("plan_void")


def take_continuation(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    granted, tool = state.brief.limits.continuations, pending.action.tool
    until = state.updated_at + timedelta(milliseconds=granted.max_plugin_total_time_ms)
    graph = acting_of(state.waiting).graph(pending.step) or Graph(step=pending.step, until=until)
    number, most = graph.round + 1, granted.max_plugin_continuations
    parsed = graph.stopped or _parsed(state, pending, result, number)
    if not isinstance(parsed, tuple):
        bad = acting.failure(state, pending, "bad_continuation", str(parsed)[:MAX_REASON])
        return take_answer(with_facts(state, acting.attempt_answered(pending, "error", bad.error)), pending, bad)
    wish, tasks = parsed
    asker = replace(pending, asks=number)
    if number > most:
        why = say("continuations_used", most=most, tool=tool, wish=wish)
        took = acting.attempt_answered(pending, "budget", ToolError(error_class="budget", message=str(why)))
        return stop(with_facts(state, took, waiting=with_requests(state.waiting, asker, graph=graph)), graph, why)
    larger = with_requests(state.waiting, asker, *tasks, graph=replace(graph, round=number))
    facts = acting.attempt_answered(pending, "continuation"), TasksAsked(tasks=tasks)
    news = say("asks_for_more", step=pending.step, tool=tool, wish=wish)
    return send_ready(with_facts(state, *facts, waiting=larger), news=news)


def take_answer(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    after = finish_request(state, pending, result)
    if not acting_of(after.waiting).requests:
        return asking.reflect(after)
    news = say("task_came", step=pending.step, task=pending.task, status=result.status)
    return send_ready(after, news=news if pending.id else "")


def finish_request(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    status: Literal["ok", "error"] = "ok" if result.status == "ok" else "error"
    state = acting.with_artifacts(limits.charge_child(state, pending, result), result)
    output = acting.result_output(result)
    if not pending.id:
        return acting.finish_step(state, pending, status, output)
    waiting, left = without_request(state.waiting, pending)
    graph = left.graph(pending.step)
    if graph and pending.grant:  # a child has limits of its own, and may have waited for people
        out = [one.requested_at for one in left.pendings if one.step == pending.step and one.grant]
        alone = min([state.updated_at, *out]) - pending.requested_at  # the time with others counts when they return
        waiting = with_requests(waiting, graph=replace(graph, until=graph.until + max(alone, timedelta())))
    evidence = TaskResult(
        step=pending.step,
        task=pending.id,
        round=pending.place[0],
        place=pending.place[1],
        kind=pending.kind,
        tool=pending.action.tool,
        command=pending.action.command,
        status=status,
        output=notes.bounded(output, MAX_KEPT).value,
        query=pending.query,
        profile=pending.profile,
    )
    finished = acting.request_finished(pending, status, evidence.output)
    return with_facts(state, finished, waiting=waiting, evidence=(*state.evidence, evidence))


def stop(state: RunState, graph: Graph, why: Text) -> RunState:
    """Drops the requests of a step that may be repeated, and starts no more."""
    out = [one for one in state.pendings if one.step == graph.step and not one.grant]
    dropped = [one for one in out if acting.is_repeatable(state, one)]
    given_up = [replace(one, asks=graph.round) for one in dropped]  # they wait, for nothing, until the step ends
    waiting = with_requests(state.waiting, *given_up, graph=replace(graph, stopped=why))
    facts, news = [RequestDropped(**one.ref) for one in dropped], say("gathering_stopped", step=graph.step, why=why)
    return send_ready(with_facts(state, *facts, waiting=waiting), news=news)


def _end_over_limit(state: RunState, graph: Graph) -> RunState:
    results = _in_order(one for one in state.evidence if one.step == graph.step)
    own = next(one for one in acting_of(state.waiting).requests if one.step == graph.step and not one.id)
    gathered: list[JsonValue] = [_item(one, MAX_GATHERED) for one in results]
    message = str(say("gathered_so_far", why=graph.stopped))
    return acting.finish_step(state, own, "budget", {"class": "budget", "message": message, "gathered": gathered})


# Scheduling


def send_ready(state: RunState, *, news: Text = "") -> RunState:
    """Sends every request that is ready, or asks for the first approval; nothing after the run's deadline. The model
    reflects once nothing is out.
    """
    tried, need_approval = set[tuple[int, str]](), list[tuple[Pending, Text]]()
    for stopped in [one for one in acting_of(state.waiting).graphs if one.stopped]:
        if not any(one.step == stopped.step for one in state.pendings):
            state = _end_over_limit(state, stopped)
    while acting_of(state.waiting).graphs and (ready := _next(state, tried)):
        tried.add((ready.step, ready.id))
        if flaw := _flaw(state, ready):
            state = finish_request(state, ready, acting.failure(state, ready, *flaw))
        elif why := planning.approval_reason(state, action_as_sent(state, ready)):
            need_approval.append((ready, why))
        else:
            state = acting.send(state, ready)
    if need_approval and not state.pendings:
        return _ask_approval(state, *need_approval[0])
    if not acting_of(state.waiting).requests:
        return asking.reflect(state)
    sent = [fact.pending for fact in state.happened if isinstance(fact, RequestSent)]
    asked = ", ".join([f"{one.task} {one.action.tool} {one.action.command}" for one in sent])
    summary = say("gathers", news=news, asked=asked) if sent else news
    return replace(state, summary=summary) if summary else state


def _next(state: RunState, tried: set[tuple[int, str]]) -> Pending | None:
    """The first request, by step and task, that can be sent or has to fail now. Requests that find no capacity are
    skipped: with a hundred tasks they are most.
    """
    may_send = state.status is not Status.PAUSED and state.updated_at < state.brief.limits.deadline_at
    now = acting_of(state.waiting)
    rounds = {graph.step: graph.round for graph in now.graphs if not graph.stopped}
    awaited = {(one.step, asker_id(one.id)) for one in now.requests if one.id}
    results, busy = {one.name: one.status for one in state.evidence}, [one.action.tool for one in now.pendings]
    for one in now.requests:
        if one.is_out or one.step not in rounds or (one.step, one.id) in tried:
            continue
        if one.asks:  # its tool is asked again once its tasks are over
            fails, ready = False, (one.step, one.id) not in awaited
        else:
            needed = [results.get((one.step, need, one.place[0])) for need in one.needs]
            fails, ready = "error" in needed, all(needed)
        if fails or (may_send and ready and _has_room(state.brief, busy, one.action.tool)):
            return _again(one, rounds[one.step] + 1) if one.asks else one
    return None


def _again(asker: Pending, number: int) -> Pending:
    return replace(asker, task=f"{asker.id}.{AGAIN}" if asker.id else AGAIN, round=number, asks=0, attempt=0)


def _has_room(brief: Brief, busy: list[str], tool: str) -> bool:
    granted = brief.limits.continuations
    if len(busy) >= granted.parallel:
        return False
    most = brief.limits.max_children if limits.needs_grant(brief, tool) else granted.parallel_per_tool
    return busy.count(tool) < min(most, granted.parallel_per_tool)


def _flaw(state: RunState, ready: Pending) -> tuple[str, Text] | None:
    brief = state.brief
    failed = [one.task for one in state.evidence if one.status == "error" and _is_needed(one, ready)]
    if failed and ready.task == ready.id:
        return "dependency", say("dependency_failed", tasks=", ".join(failed))
    action = action_as_sent(state, ready)
    if limits.needs_grant(brief, action.tool) and (why := limits.grant_shortfall(state, limits.unsent_children(state))):
        return "budget", why
    if (size := size_of(action.payload)) > MAX_SENT:
        return "too_large", say("request_too_large", size=size, most=MAX_SENT)
    if flaws := (*planning.refusal_flaws(state, action), *acting.doubt_flaws(state, action)):
        return "not_approved", say("all_of", flaws=flaws)
    return OVERRULED if brief.writes(action) and state.words > state.shown else None


def _is_needed(one: TaskResult, by: Pending) -> bool:
    return one.step == by.step and one.round == by.place[0] and one.task in by.needs


def _ask_approval(state: RunState, ready: Pending, why: Text) -> RunState:
    held = state.waiting
    assert isinstance(held, Acting), "a paused run asks no executor"
    asked = say("asked_again", tool=ready.action.tool)
    if ready.task == ready.id:
        asker = next(one for one in held.requests if (one.step, one.id) == (ready.step, asker_id(ready.id)))
        asked = say("tool_asks", tool=asker.action.tool, why=" ".join(ready.reason.split()))
    proposal = Plan(action=action_as_sent(state, ready), rationale=str(asked))
    return planning.ask_approval(state, proposal, say("asked_because", why=why, asked=asked), held=held, of=ready)


def on_ruling(state: RunState, of: RequestRef, *, by: str = "", refused: tuple[str, Text] | None = None) -> RunState:
    ready = next(one for one in acting_of(state.waiting).requests if (one.step, one.id) == (of.step, of.id))
    ready = _again(ready, of.round) if ready.asks else ready
    if refused:
        return send_ready(finish_request(state, ready, acting.failure(state, ready, *refused)))
    return send_ready(acting.send(state, ready, by=by))


# Parsing


def _parsed(
    state: RunState, asker: Pending, result: ToolResult, number: int
) -> tuple[Text, tuple[Pending, ...]] | Text:
    """Summary and tasks of continuation `number`, or its flaws. `read_continuation` checks fields and dependencies."""
    offer, most = state.brief.skill(asker.action.tool), state.brief.limits.continuations.max_tasks
    if offer is not None and not offer.continues:
        return say("never_continues", tool=offer.name)
    try:
        continuation = read_continuation(result.result)
    except ContinuationInvalid as error:
        return say("continuation_unread", why=str(error))
    if len(continuation.tasks) > most:
        return say("too_many_tasks", asked=len(continuation.tasks), most=most)
    flaws, tasks = list[Text](), list[Pending]()
    for place, asked in enumerate(continuation.tasks, start=1):
        tasks.append(_task(state, asker, asked, (number, place)))
        wrong = acting.action_flaws(state.brief, tasks[-1].action)
        if asked.action == "retrieve" and state.brief.skill(tasks[-1].action.tool) is None:
            wrong = (say("no_retrieval", tool=tasks[-1].action.tool),)
        flaws += [say("flaw_of_task", task=asked.id, flaw=flaw) for flaw in wrong]
    if flaws:
        return say("continuation_flawed", flaws=tuple(flaws))
    return continuation_summary(continuation), tuple(tasks)


def continuation_summary(continuation: Continuation) -> str:
    if isinstance(continuation, MultiStep):
        names = ", ".join([task.id for task in continuation.tasks])
        return str(say("wishes_tasks", count=len(continuation.tasks), tasks=names))[:MAX_SUMMARY]
    return str(say("wishes_retrieval", query=continuation.query))[:MAX_SUMMARY]


def _task(state: RunState, asker: Pending, asked: RetrieveTask | PluginTask, place: tuple[int, int]) -> Pending:
    before, brief = f"{asker.id}." if asker.id else "", state.brief
    search: dict[str, Any] = {}
    if isinstance(asked, RetrieveTask):
        profile = asked.profile or brief.limits.continuations.continuation_retrieval_profile
        search = {"query": asked.query, "profile": profile}
        action = _retrieval(brief, search)
    else:
        action = _call(brief, asker.action, asked)
    skill, at = brief.skill(action.tool), state.updated_at
    return Pending(
        step=asker.step,
        task=f"{before}{asked.id}",
        round=place[0],
        action=action,
        route=skill.route if skill else "",  # one that is not on offer is refused before anything is sent
        requested_at=at,
        deadline_at=at,
        until=at,
        place=place,
        needs=tuple([f"{before}{need}" for need in asked.depends_on]),
        kind=asked.action,
        reason=asked.reason or "",
        **search,
    )


def _retrieval(brief: Brief, search: dict[str, str]) -> Action:
    tool, _, command = brief.limits.continuations.retrieval_tool.partition(".")
    skill = brief.skill(tool)
    reads = [one.name for one in skill.commands if one.tier == "read"] if skill else []
    return Action(tool=tool, command=command or next(iter(reads), ""), arguments={**search})


def _call(brief: Brief, asking: Action, asked: PluginTask) -> Action:
    skill = brief.skill(asked.plugin)
    names = [one.name for one in skill.commands] if skill else []
    usual = names[0] if len(names) == 1 else HANDLE
    command = asked.command or (asking.command if asked.plugin == asking.tool else usual)
    action = Action(tool=asked.plugin, command=command, arguments={})
    return replace(action, arguments=_arguments(brief.command(action), asked.input))


def _arguments(command: ToolCommand | None, value: str | dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Wraps a text as the tool's only required text argument, or as `input`."""
    if isinstance(value, dict):
        return value
    match command.input_schema if command else {}:
        case {"properties": {} as known, "required": [str(name)]} if "input" not in known:
            field = known.get(name)
            if isinstance(field, dict) and field.get("type") == "string":
                return {name: value}
    return {"input": value}


# Arguments


def action_as_sent(state: RunState, pending: Pending) -> Action:
    if not pending.task:
        return pending.action
    results = task_results(state.evidence, pending, state.brief.limits.continuations)
    return replace(pending.action, given=results) if results else pending.action


def task_results(evidence: Sequence[TaskResult], asked: Pending, granted: Continuations) -> dict[str, JsonValue]:
    """Results of its own tasks for a tool that is asked again, else those of its dependencies."""
    if asked.task == asked.id:
        return {"evidence": _handed([one for one in evidence if _is_needed(one, asked)])} if asked.needs else {}
    mine = [one for one in evidence if one.step == asked.step and asker_id(one.task) == asked.id]
    results = _handed([one for one in mine if asked.place[0] < one.round < asked.round])
    left = max(0, granted.max_plugin_continuations - asked.round + 1)
    return {"evidence": results, "continuations": asked.round - 1, "continuations_left": left}


def _in_order(some: Iterable[TaskResult]) -> list[TaskResult]:
    return sorted(some, key=lambda one: (one.round, one.place))


def _handed(some: Sequence[TaskResult]) -> list[JsonValue]:
    share, ordered = MAX_HANDED // max(1, len(some)), _in_order(some)
    while size_of(handed := [_item(one, share) for one in ordered]) > MAX_HANDED and share > LEAST_HANDED:
        share //= 2
    return [*handed]


def _item(one: TaskResult, share: int) -> dict[str, JsonValue]:
    item: dict[str, JsonValue] = {"task": one.task.rpartition(".")[2], "round": one.round, "action": one.kind}
    if one.kind == "retrieve":
        item |= {"query": clipped(one.query, share), "profile": one.profile}
    item |= {"tool": one.tool, "status": one.status}
    return item | {"result" if one.status == "ok" else "error": notes.bounded(one.output, share).value}


def size_of(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
