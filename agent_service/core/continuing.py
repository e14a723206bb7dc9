"""Continuations: a tool asks for more before it can answer its step, gets it, and is asked again.

Each task is sent once, after its dependencies; a failed one fails its dependents only. The asker is asked again when
all came, until it answers or a budget of the step is spent. Approvals, doubts and words of people hold as for a plan;
a paused run begins nothing. A step over budget waits only for possible writes, and ends `budget`.
"""

from datetime import timedelta

from pydantic import JsonValue

from agent_service.core import acting, approving, finishing, grants, tasks
from agent_service.core.facts import RequestDropped, RequestSent, TaskFinished, TasksAsked
from agent_service.core.in_flight import answer, graph_of, with_graph, without_pending
from agent_service.core.phases import Plan
from agent_service.core.state import RunState, with_facts
from agent_service.core.tasks import (
    OVERRULED,
    UNHEARD,
    Ready,
    flaw_of,
    is_unheard,
    may_begin,
    next_of,
    ready_for,
)
from agent_service.core.waiting import Acting, Approval, Evidence, Name, Pending, Task, TaskGraph, asker_of
from agent_service.sentences import Text, say
from schemas.continuation import Continuation, ContinuationInvalid, MultiStep, read
from schemas.events import ToolError, ToolResult
from schemas.values import replace

BAD = "bad_continuation"
MAX_WISH, MAX_REASON = 200, 4000


def take_continuation(
    state: RunState, pending: Pending, result: ToolResult, *, unfit: tuple[Text, ...] = ()
) -> RunState:
    graph = graph_of(state.waiting, pending.step) or _begun(state, pending)
    asker = tasks.task_of(graph, pending.task)
    assert asker is not None, "what is asked is not answered yet"
    number, most = graph.round + 1, state.brief.limits.continuations.max_plugin_continuations
    asked = graph.stopped or _asked(state, asker, result, number, unfit)
    if not isinstance(asked, tuple):
        refused = _refused(result, asked)
        return take_answer(with_facts(state, answer(pending, "error", refused.error)), pending, refused)
    wish, needed = asked
    rest = with_graph(state, graph, without_pending(state.waiting, pending))
    if number > most:
        why = say("continuations_used", most=most, tool=pending.action.tool, wish=wish)
        over = ToolError(error_class="budget", message=str(why))
        return _stop(with_facts(rest, answer(pending, "budget", over)), graph, why)
    waiting = tuple(replace(task, asks=number) if task is asker else task for task in graph.tasks)
    larger = replace(graph, round=number, tasks=(*waiting, *needed))
    rest = with_facts(rest, answer(pending, "continuation"), TasksAsked(step=pending.step, tasks=needed))
    return launch(
        _with(rest, larger), news=say("asks_for_more", step=pending.step, tool=pending.action.tool, wish=wish)
    )


def take_answer(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    """`pending` may also be the step's own request, answered at once."""
    graph = graph_of(state.waiting, pending.step)
    task = tasks.task_of(graph, pending.task) if graph else None
    if graph is None or task is None:
        known = finishing.finish_step(state, pending, result)
        return launch(known) if known.graphs else finishing.go_on(known)
    known = settled(state, pending, result)
    return launch(known, news=say("task_came", step=pending.step, task=pending.task, status=result.status))


def settled(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    graph = graph_of(state.waiting, pending.step)
    assert graph is not None, "the step gathers"
    task = tasks.task_of(graph, pending.task)
    assert task is not None, "what is under way is not answered yet"
    if not task.id:
        return finishing.finish_step(state, graph.first, result)
    if pending.grant:  # it has budgets of its own, and may have waited for people
        graph = replace(graph, until=graph.until + (state.updated_at - pending.requested_at))
    rest = with_graph(grants.settled(state, pending, result), graph, without_pending(state.waiting, pending))
    return _with_evidence(rest, graph, task, result)


def on_time_over(state: RunState, graph: TaskGraph) -> RunState:
    granted = state.brief.limits.continuations.max_plugin_total_time_ms
    return _stop(state, graph, say("gathering_over", most=granted))


def launch(state: RunState, *, news: Text = "", sent: tuple[Pending, ...] = ()) -> RunState:
    """Send what may be sent beside `sent`, or ask for the first approval; nothing after the run's deadline."""
    passed, barred = set[Name](), list[tuple[Ready, Text]]()
    for stopped in (one for one in state.graphs if one.stopped and not _of_step(state, one)):
        state = _over(state, stopped)
    while ready := next_of(state, passed, begins=may_begin(state)):
        passed.add(ready.known_as)
        if flaw := flaw_of(state, ready):
            state = _failed(state, ready, *flaw)
        elif why := approving.why_needed(state, ready.action):
            barred.append((ready, why))
        else:
            state, pending = _sent(state, ready)
            state, sent = with_facts(state, RequestSent(pending=pending)), (*sent, pending)
    if barred and not state.pendings:
        return _ask(state, *barred[0])
    return _resting(state, sent, news)


def allowed(state: RunState, approval: Approval) -> RunState:
    state, pending = _sent(state, _in_question(state, approval))
    told = RequestSent(pending=pending, approved_by=state.rulings[-1].by)
    return launch(with_facts(state, told), sent=(pending,))


def not_allowed(state: RunState, approval: Approval, why: Text) -> RunState:
    return launch(_failed(state, _in_question(state, approval), "not_approved", why))


def overruled(state: RunState, approval: Approval) -> RunState:
    return launch(_failed(state, _in_question(state, approval), OVERRULED, UNHEARD))


def heeding(state: RunState, before: RunState) -> RunState:
    """Steps gather on with a ruling's words, unless people had said something `before` that the model was not told."""
    held = state.waiting
    if not isinstance(held, Acting):
        return state
    heeds = (one if is_unheard(before, one) else replace(one, words=state.words) for one in held.graphs)
    return replace(state, waiting=replace(held, graphs=tuple(heeds)))


def _begun(state: RunState, pending: Pending) -> TaskGraph:
    granted = state.brief.limits.continuations.max_plugin_total_time_ms
    return TaskGraph(
        step=pending.step,
        first=pending,
        since=state.updated_at,
        until=state.updated_at + timedelta(milliseconds=granted),
        round=0,
        tasks=(Task(id="", round=0, place=0, action=pending.action),),
        nameless=pending.nameless,
    )


def _with(state: RunState, graph: TaskGraph) -> RunState:
    return with_graph(state, graph, state.pendings)


def _asked(
    state: RunState, asker: Task, result: ToolResult, number: int, unfit: tuple[Text, ...]
) -> tuple[Text, tuple[Task, ...]] | Text:
    offer = state.brief.skill(asker.action.tool)
    if offer is not None and not offer.continues:
        return say("never_continues", tool=offer.name)
    try:
        continuation = read(result.result)
    except ContinuationInvalid as error:
        return say("continuation_unread", why=str(error))
    asked, seen = tasks.drawn(state.brief, asker, continuation, number)
    flaws = (*seen, *unfit)
    return say("continuation_flawed", flaws=flaws) if flaws else (wish_of(continuation), asked)


def wish_of(continuation: Continuation) -> str:
    match continuation:
        case MultiStep(tasks=asked):
            names = ", ".join(task.id for task in asked)
            return str(say("wishes_tasks", count=len(asked), tasks=names))[:MAX_WISH]
    return str(say("wishes_retrieval", query=continuation.query))[:MAX_WISH]


def _refused(result: ToolResult, why: Text) -> ToolResult:
    error = ToolError(error_class=BAD, message=str(why)[:MAX_REASON])
    return result.model_copy(update={"status": "error", "error": error, "result": None})


def _in_question(state: RunState, approval: Approval) -> Ready:
    graph = graph_of(state.waiting, approval.step)
    task = tasks.task_of(graph, approval.task) if graph else None
    assert graph is not None, "its step gathers still"
    assert task is not None, "what is asked for is not answered yet"
    return ready_for(state, graph, task, (approval.step, approval.task, approval.round))


def _sent(state: RunState, ready: Ready) -> tuple[RunState, Pending]:
    step, name, asked_in = ready.known_as
    first = acting.first_attempt(state, step, ready.task.action, task=name, asked_in=asked_in)
    (pending,) = grants.granted(state, (first,), among=grants.to_come(state, ready.graph))
    under_way = (*state.pendings, pending)
    asked = grants.with_asked(state, (pending,))
    return with_graph(asked, ready.graph, tuple(sorted(under_way, key=lambda one: one.step))), pending


def _failed(state: RunState, ready: Ready, error_class: str, why: Text) -> RunState:
    graph, error = ready.graph, ToolError(error_class=error_class, message=str(why))
    result = finishing.in_place_of(state, graph.first, error=error)
    if not ready.task.id:
        return finishing.finish_step(state, graph.first, result)
    return _with_evidence(state, graph, ready.task, result)


def _with_evidence(state: RunState, graph: TaskGraph, task: Task, result: ToolResult) -> RunState:
    evidence = Evidence(
        step=graph.step,
        task=task.id,
        round=task.round,
        place=task.place,
        kind=task.kind,
        tool=task.action.tool,
        command=task.action.command,
        status="ok" if result.status == "ok" else "error",
        output=tasks.kept(finishing.output_of(result)),
        query=task.query,
        profile=task.profile,
    )
    finished = TaskFinished(
        step=evidence.step,
        task=evidence.task,
        round=evidence.round,
        tool=evidence.tool,
        command=evidence.command,
        status=evidence.status,
        summary=finishing.summary_of_output(evidence.output),
        error_class="" if evidence.status == "ok" else str(evidence.output.get("class", "")),
        query=evidence.query,
    )
    known = replace(
        with_facts(state, finished),
        evidence=(*state.evidence, evidence),
        artifacts=finishing.with_artifacts(state, result),
    )
    return _with(known, replace(graph, tasks=tuple(one for one in graph.tasks if one.id != task.id)))


def _stop(state: RunState, graph: TaskGraph, why: Text) -> RunState:
    mine = _of_step(state, graph)
    given_up = [one for one in mine if acting.is_repeatable(state, one) and not one.grant]
    left = tuple(one for one in state.pendings if one not in given_up)
    dropped = (RequestDropped(step=one.step, task=one.task, round=one.round) for one in given_up)
    stopped = with_graph(with_facts(state, *dropped), replace(graph, stopped=why), left)
    name = "gathering_waits" if len(given_up) < len(mine) else "gathering_stopped"
    return launch(stopped, news=say(name, step=graph.step, why=why))


def _of_step(state: RunState, graph: TaskGraph) -> list[Pending]:
    return [pending for pending in state.pendings if pending.step == graph.step]


def _over(state: RunState, graph: TaskGraph) -> RunState:
    message = str(say("gathered_so_far", why=graph.stopped))
    known = tasks.told(state, graph.step)
    told: dict[str, JsonValue] = {"class": "budget", "message": message, "gathered": known}
    result = finishing.in_place_of(state, graph.first, error=ToolError(error_class="budget", message=message))
    return finishing.finish_step(state, graph.first, result, told=told, over_budget=True)


def _ask(state: RunState, ready: Ready, why: Text) -> RunState:
    held = state.waiting
    assert isinstance(held, Acting), "a paused run asks no executor"
    asked = _who_asks(ready)
    proposal = Plan(action=ready.action, rationale=str(asked))
    return approving.ask_approval(
        state, proposal, say("asked_because", why=why, asked=asked), held=held, of=ready.known_as
    )


def _who_asks(ready: Ready) -> Text:
    if ready.task.asks:
        return say("asked_again", tool=ready.task.action.tool)
    asker = tasks.task_of(ready.graph, asker_of(ready.task.id))
    assert asker is not None, "who asked waits for what it asked for"
    why = " ".join(ready.task.reason.split())
    return say("tool_asks", tool=asker.action.tool, why=why)


def _resting(state: RunState, sent: tuple[Pending, ...], news: Text) -> RunState:
    if not state.open_steps:
        return finishing.go_on(state)
    asked = ", ".join(f"{pending.task} {pending.action.tool} {pending.action.command}" for pending in sent)
    summary = say("gathers", news=news, asked=asked) if news or asked else state.summary
    return replace(state, summary=summary)
