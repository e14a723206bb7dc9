"""Bugs to sow into the core: a function of it replaced by what `sow` makes of the right one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from agent_service.core import decide, endings
from agent_service.core.effects import AskModel, Transition
from agent_service.core.evidence.proof import Judged
from agent_service.core.model import asking
from agent_service.core.state import RunState
from agent_service.core.tools import acting, finishing
from agent_service.core.tools.correlate import Judgement, Relation
from agent_service.core.waiting import Deciding, ToolRetry


@dataclass(frozen=True, slots=True)
class Bug:
    """`name` of `where` replaced by what `sow` makes of it."""

    what: str
    where: Any
    name: str
    sow: Callable[[Any], Any]


def always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_args, **_kwargs: value


def before(change: Callable[..., tuple[Any, ...]]) -> Callable[[Any], Any]:
    """The function as it was, given what `change` makes of its positional arguments."""
    return lambda right: lambda *args, **named: right(*change(*args), **named)


def behind(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function as it was, with `change` applied to what it returns."""
    return lambda right: lambda *args, **named: change(right(*args, **named))


def unless(relation: Relation, like: Callable[[RunState, Any], bool]) -> Callable[[Any], Any]:
    """`judge` with `relation` taken for a match, where the state and the result are `like` that."""

    def sow(right: Any) -> Any:
        def judge_wrongly(state: RunState, result: Any, *place: str) -> Judgement:
            judged: Judgement = right(state, result, *place)
            wrong = judged.relation is relation and state.pending is not None and like(state, result)
            return Judgement(Relation.MATCH, "", state.pending) if wrong else judged

        return judge_wrongly

    return sow


def same_step(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.step == state.pending.step


def other_tool(state: RunState, result: Any) -> bool:
    return state.pending is not None and result.tool != state.pending.action.tool


def without_retry_number(retried: Transition | None) -> Transition | None:
    if retried is None or retried.state is None or retried.state.pending is None:
        return retried
    assert isinstance(retried.state.waiting, ToolRetry)
    pending = replace(retried.state.pending, attempt=retried.state.pending.attempt - 1)
    return replace(retried, state=replace(retried.state, waiting=replace(retried.state.waiting, pending=pending)))


def at_once(retried: Transition | None) -> Transition | None:
    if retried is None or retried.state is None or retried.state.pending is None:
        return retried
    return acting.send(retried.state, retried.state.pending, at=retried.state.updated_at)


def not_sent(sent: Transition) -> Transition:
    assert sent.state is not None
    assert sent.state.pending is not None
    waiting = ToolRetry(pending=sent.state.pending, retry_at=sent.state.updated_at)
    return replace(sent, state=replace(sent.state, waiting=waiting))


def said_twice(ended: Transition) -> Transition:
    return replace(ended, effects=(*ended.effects, ended.effects[-1]))


def asking_while_paused(paused: Transition) -> Transition:
    asking = paused.state.asking if paused.state else None
    asked = (AskModel(call=asking.call, phase=asking.phase),) if asking else ()
    return replace(paused, effects=(*paused.effects, *asked))


def always_done(state: RunState, reflection: Any, *, at: Any) -> Transition:
    return endings.complete(state, reflection.summary, at)


def every_item_ticked(state: RunState, reflection: Any, _seen: Any) -> Judged:
    named = {claim.item: claim.evidence for claim in reflection.met}
    items = tuple(replace(item, evidence=(named.get(item.id, "trust me"),)) for item in state.done_items)
    return Judged(items=items, accepted=reflection.met, refusals=())


def recorded_again(state: RunState, event: Any, _why: str) -> Transition:
    which = (event.result.step, event.result.attempt)
    return Transition(state=replace(state, late=(*state.late, which)))


def reflected_at_once(state: RunState, pending: Any, result: Any, *, at: Any) -> Transition:
    finished = finishing.finish_step(state, pending, result, at=at)
    return asking.reflect(replace(finished, waiting=Deciding()), at=at)


def decided(by: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The table, with what `change` makes of the function `by` of `decide` in its place."""
    right = getattr(decide, by)

    def sow(table: Any) -> Any:
        return {
            waiting: {
                kind: replace(rule, decider=change(right)) if rule.decider is right else rule
                for kind, rule in row.items()
            }
            for waiting, row in table.items()
        }

    return sow


def as_in(other: type, kind: type, waiting: type) -> Callable[[Any], Any]:
    """The table, with an event of `kind` in the state `waiting` decided as it is in `other`."""
    return lambda table: {**table, waiting: {**table[waiting], kind: table[other][kind]}}


def any_call_for_this_one(state: RunState, event: Any) -> tuple[RunState, Any]:
    return state, replace(event, call=state.asking.call) if state.asking else event
