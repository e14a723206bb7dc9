"""The log line of an entry: transition, latency, cost, caller.

It has no text of goals, models and tools but the reason of a failure. WARNING means that a model or tool was out of
reach, or that a run stopped neither done nor cancelled.
"""

import logging
from typing import Any

from agent_service.core.events import ModelReplied, ModelUnavailable, TimerFired, ToolReturned
from agent_service.core.facts import AttemptAnswered, Decided, PersonAsked, RunEnded
from agent_service.core.waiting import Status, Stop
from agent_service.history.results import execution_of
from agent_service.history.text import one_line
from agent_service.history.words import clauses
from agent_service.run.journal import Commit
from agent_service.trust.identity import trace_id

LONGEST_REASON = 500
FOR_MACHINES = frozenset({"wake_id", "trace_id", "entry", "event", "logger"})
"""Fields left out for people who watch the log."""
OF_TROUBLE = (RunEnded, PersonAsked, AttemptAnswered)
AS_ASKED = (Status.DONE, Status.CANCELLED)

Fields = dict[str, Any]

log = logging.getLogger(__name__)


def write(change: Commit) -> None:
    may_be_trouble = isinstance(change.event, ModelUnavailable) or not change.kinds.isdisjoint(OF_TROUBLE)
    if log.isEnabledFor(logging.INFO) or (may_be_trouble and _trouble_of(change)[1]):
        message, fields = log_line(change)
        log.log(logging.WARNING if "why" in fields else logging.INFO, message, extra=fields)


def log_line(change: Commit) -> tuple[str, Fields]:
    """Message and fields; `why` makes it a warning. Field names follow card 105; unknown values are null.

    `latency_ms` counts from the answered request, else from the entry before. `tokens` and `cost_usd` are those of the
    answered call, or of the whole run at its end.
    """
    run, event, (error_class, trouble) = change.state, change.event, _trouble_of(change)
    answer, ended = change.first(AttemptAnswered), change.first(RunEnded)
    pending, spent = run.pending, ended.spent if ended else None
    request = answer or pending
    tokens, cost_usd = (spent.tokens, spent.cost_usd) if spent else (None, None)
    if not spent and isinstance(event, ModelReplied):
        tokens, cost_usd = event.usage.input_tokens + event.usage.output_tokens, event.usage.cost_usd
    fields: Fields = {
        "run_id": run.run_id,
        "wake_id": run.wake_id,
        "trace_id": trace_id(run.run_id),
        "entry": change.entry.seq,
        "event": change.entry.kind,
        "state_transition": change.state_transition,
        "step": (request.step if request else run.step) or None,
        "tool": answer.tool if answer else pending.action.tool if pending else None,
        "attempt": request.attempt if request else None,
        "latency_ms": _latency_ms(change, answer),
        "error_class": error_class,
        "tokens": tokens,
        "cost_usd": cost_usd,
    }
    if request and request.task:
        fields |= {"task": request.task, "round": request.round}
    fields |= {name: getattr(event, name) or None for name in ("by", "call", "model") if hasattr(event, name)}
    if isinstance(event, ToolReturned) and (execution := execution_of(event.result)):
        fields |= execution.model_dump(include={"job_id", "attempts", "exit_code"}, exclude_none=True)
    if trouble:
        fields["why"] = one_line(trouble, LONGEST_REASON)
    return "; ".join([one.bare for one in clauses(change)]), fields


def _latency_ms(change: Commit, answer: AttemptAnswered | None) -> int | None:
    if change.before is None:
        return None
    since = change.before.updated_at
    if answer:
        since = {one.name: one.requested_at for one in change.before.pendings}.get(answer.name, since)
    return max(0, round((change.entry.at - since).total_seconds() * 1000))


def _trouble_of(change: Commit) -> tuple[str | None, str]:
    """Error class of the entry, and the reason if it deserves a warning."""
    event = change.event
    known = (event.error_class, str(event.message)) if isinstance(event, ModelUnavailable) else None
    for fact in change.facts:
        stop = fact.ask if isinstance(fact, PersonAsked) else fact
        if isinstance(stop, Stop) or (isinstance(stop, RunEnded) and stop.status not in AS_ASKED):
            return stop.ending_class, str(stop.reason)
        if isinstance(fact, AttemptAnswered) and fact.error:
            out_of_reach = fact.error.retryable or isinstance(event, TimerFired)
            known = known or (fact.error.error_class, fact.error.message if out_of_reach else "")
        elif isinstance(fact, Decided) and fact.error_class:
            known = known or (fact.error_class, "")
    return known or (None, "")
