"""The log's line of an entry: which run moved where, how long that took, what it cost, who asked.

No words of goals, models and tools but the reason of a failure. WARNING: a model or tool out of reach, and a run that
stops otherwise than done or as asked.
"""

import logging
from typing import Any

from agent_service.core.attempts import Name
from agent_service.core.events import (
    ModelReplied,
    ModelUnavailable,
    TimerFired,
    ToolReturned,
)
from agent_service.core.facts import (
    AttemptAnswered,
    Decided,
    Ended,
    PersonAsked,
)
from agent_service.core.phases import Plan
from agent_service.core.waiting import Approval, Status, Stop
from agent_service.history.plain import one_line
from agent_service.history.results import execution_of
from agent_service.history.words import bare
from agent_service.run.changes import ChangeRecord
from agent_service.run.journal import Record
from agent_service.trust.identity import trace_id
from schemas.values import dataclass

LONGEST_REASON = 500
FOR_MACHINES = frozenset({"wake_id", "trace_id", "entry", "event", "logger"})
"""Fields that a person who watches the log can do without."""
_OF_TROUBLE = (Ended, PersonAsked, AttemptAnswered)
AS_ASKED = (Status.DONE, Status.CANCELLED)

Fields = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogLine:
    """Names follow card 105; unknown values are null. `latency_ms` is since the answered request, else since the entry
    before. `tokens` and `cost_usd` are of the answered call; of the whole run at its end.
    """

    level: int
    message: str
    fields: Fields


def write(change: ChangeRecord) -> None:
    may_be_trouble = isinstance(change.event, ModelUnavailable) or not change.kinds.isdisjoint(_OF_TROUBLE)
    if log.isEnabledFor(logging.INFO) or (may_be_trouble and log.isEnabledFor(logging.WARNING) and _wrong(change)[1]):
        line = log_line(change)
        log.log(line.level, line.message, extra=line.fields)


def log_line(change: ChangeRecord) -> LogLine:
    run, (error_class, trouble) = change.after, _wrong(change)
    fields = {
        "run_id": run.run_id,
        "wake_id": run.wake_id,
        "trace_id": trace_id(run.run_id),
        "entry": change.entry.seq,
        "event": change.entry.kind,
        "state_transition": change.state_transition,
        **_of_step(change),
        "latency_ms": _latency_ms(change),
        "error_class": error_class,
        **_spent(change),
        **_besides(change),
    }
    if trouble:
        fields["why"] = one_line(trouble, LONGEST_REASON)
    return LogLine(logging.WARNING if trouble else logging.INFO, bare(change), fields)


def _of_step(change: ChangeRecord) -> Fields:
    run, answer, asked = change.after, change.first(AttemptAnswered), change.after.ask
    name: Name = (run.step, "", 0)
    tool, attempt = None, None
    if answer:
        name, tool, attempt = answer.name, answer.tool, answer.attempt
    elif pending := run.pending:
        name, tool, attempt = pending.name, pending.action.tool, pending.attempt
    elif isinstance(asked, Approval) and isinstance(asked.proposal, Plan):
        name, tool = (asked.step or run.step + 1, asked.task, asked.round), asked.proposal.action.tool
    step, task, asked_in = name
    about = {"step": step or None, "tool": tool, "attempt": attempt}
    return about | ({"task": task, "round": asked_in} if task else {})


def _latency_ms(change: ChangeRecord) -> int | None:
    if change.before is None:
        return None
    answer = change.first(AttemptAnswered)
    asked = (pending for pending in change.before.pendings if answer and pending.name == answer.name)
    since = next((pending.requested_at for pending in asked), change.before.updated_at)
    return max(0, round((change.entry.at - since).total_seconds() * 1000))


def _wrong(change: ChangeRecord) -> tuple[str | None, str]:
    """The class of what went wrong, and its reason where that is trouble."""
    event, answer = change.event, change.first(AttemptAnswered)
    for fact in change.facts:
        stop = fact.ask if isinstance(fact, PersonAsked) else fact
        if isinstance(stop, Stop) or (isinstance(stop, Ended) and stop.status not in AS_ASKED):
            return stop.ending_class, str(stop.reason)
    if isinstance(event, ModelUnavailable):
        return event.error_class, str(event.message)
    if answer and answer.error:
        out_of_reach = answer.error.retryable or isinstance(event, TimerFired)
        return answer.error.error_class, answer.error.message if out_of_reach else ""
    return next((one.error_class for one in change.all(Decided) if one.error_class), None), ""


def _spent(change: ChangeRecord) -> Fields:
    if change.first(Ended):
        spent = change.after.spent
        return {"tokens": spent.tokens, "cost_usd": spent.cost_usd}
    if isinstance(change.event, ModelReplied):
        usage = change.event.usage
        return {"tokens": usage.input_tokens + usage.output_tokens, "cost_usd": usage.cost_usd}
    return {"tokens": None, "cost_usd": None}


def _besides(record: Record) -> Fields:
    event = record.event
    told = {name: getattr(event, name) or None for name in ("by", "call", "model") if hasattr(event, name)}
    execution = execution_of(event.result) if isinstance(event, ToolReturned) else None
    ran = execution.model_dump(include={"job_id", "attempts", "exit_code"}, exclude_none=True) if execution else {}
    return told | ran
