"""The log's line of an entry: which run moved where, how long that took, what it cost, who asked.

No words of goals, models and tools but the reason of a failure. WARNING: a model or tool out of reach, and a run that
stops otherwise than done or as asked.
"""

import logging
from dataclasses import dataclass
from typing import Any

from agent_service.core.events import (
    CallReserved,
    CancelRequested,
    ModelReplied,
    ModelUnavailable,
    RunStarted,
    SignalReceived,
    StoodStill,
    TimerFired,
    ToolReturned,
    TurnBroke,
    WakeAccepted,
)
from agent_service.core.phases import Ask, Plan, Wait
from agent_service.core.state import RunState
from agent_service.core.tools.attempts import Pending
from agent_service.core.waiting import (
    Acting,
    Approval,
    Ended,
    Question,
    Sleeping,
    Status,
    Thinking,
)
from agent_service.run.moments import Moment
from agent_service.telling.acts import Act, Name, act_of
from agent_service.telling.plain import one_line
from agent_service.telling.rulings import Ruling, rulings
from agent_service.telling.sayings import DONE, OUTCOMES, request_of
from agent_service.trust.identity import trace_id

LONGEST_REASON = 500
FOR_MACHINES = frozenset({"wake_id", "trace_id", "entry", "event", "logger"})
"""Fields that a person who watches the log can do without."""
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


def write(moment: Moment) -> None:
    if log.isEnabledFor(logging.INFO) or (log.isEnabledFor(logging.WARNING) and _trouble(moment, act_of(moment))):
        line = log_line(moment)
        log.log(line.level, line.message, extra=line.fields)


def log_line(moment: Moment) -> LogLine:
    run, act, ruled = moment.after, act_of(moment), rulings(moment)
    trouble = _trouble(moment, act)
    fields = {
        "run_id": run.run_id,
        "wake_id": run.wake_id,
        "trace_id": trace_id(run.run_id),
        "entry": moment.entry.seq,
        "event": moment.entry.kind,
        "state_transition": f"{_name(moment.before)}->{_name(run)}",
        **_of_step(run, act),
        "latency_ms": _latency_ms(moment),
        "error_class": _error_class(moment, act, ruled),
        **_spent(moment),
        **_besides(moment),
    }
    if trouble:
        fields["why"] = one_line(trouble, LONGEST_REASON)
    return LogLine(logging.WARNING if trouble else logging.INFO, _message(moment, act, ruled), fields)


def _name(run: RunState | None) -> str:
    if run is None:
        return "none"
    return run.status.value if isinstance(run.waiting, Ended) else run.waiting.kind


def _of_step(run: RunState, act: Act | None) -> Fields:
    if act:
        return {"step": act.step, "tool": act.tool, "attempt": act.attempt, **_task(act.name)}
    if pending := run.pending:
        about = {"step": pending.step, "tool": pending.action.tool, "attempt": pending.attempt}
        return about | _task(pending.name)
    match run.ask:
        case Approval(proposal=Plan(action=action), step=step, task=task, round=asked_in) if task:
            return {"step": step, "tool": action.tool, "attempt": None, **_task((step, task, asked_in))}
        case Approval(proposal=Plan(action=action)):
            return {"step": run.step + 1, "tool": action.tool, "attempt": None}
    return {"step": run.step or None, "tool": None, "attempt": None}


def _task(name: Name) -> Fields:
    _, task, asked_in = name
    return {"task": task, "round": asked_in} if task else {}


def _latency_ms(moment: Moment) -> int | None:
    if moment.before is None:
        return None
    since = moment.answered.requested_at if moment.answered else moment.before.updated_at
    return max(0, round((moment.entry.at - since).total_seconds() * 1000))


def _error_class(moment: Moment, act: Act | None, ruled: tuple[Ruling, ...]) -> str | None:
    if _stopped(moment):
        return moment.after.ending_class
    if isinstance(moment.event, ModelUnavailable):
        return moment.event.error_class
    if act and act.error:
        return act.error.error_class
    return next((ruling.error_class for ruling in ruled if ruling.error_class), None)


def _stopped(moment: Moment) -> bool:
    if moment.after.stop is None:
        return False
    return (moment.ended or moment.paused) and moment.after.status not in AS_ASKED


def _trouble(moment: Moment, act: Act | None) -> str:
    if _stopped(moment):
        return moment.after.reason
    if isinstance(moment.event, ModelUnavailable):
        return moment.event.message
    out_of_reach = act and act.error and (act.error.retryable or isinstance(moment.event, TimerFired))
    return act.error.message if act and act.error and out_of_reach else ""


def _spent(moment: Moment) -> Fields:
    if moment.ended:
        spent = moment.after.spent
        return {"tokens": spent.tokens, "cost_usd": spent.cost_usd}
    if isinstance(moment.event, ModelReplied):
        usage = moment.event.usage
        return {"tokens": usage.input_tokens + usage.output_tokens, "cost_usd": usage.cost_usd}
    return {"tokens": None, "cost_usd": None}


def _besides(moment: Moment) -> Fields:
    match moment.event:
        case WakeAccepted(by=by) | CancelRequested(by=by) | SignalReceived(by=by) | StoodStill(by=by):
            return {"by": by or None}
        case ModelReplied(call=call, model=model) | CallReserved(call=call, model=model):
            return {"call": call, "model": model}
        case ModelUnavailable(call=call):
            return {"call": call}
        case ToolReturned(result=result):
            told = result.error.model_dump() if result.error else (result.result and result.result.model_extra) or {}
            return {name: told[name] for name in ("job_id", "attempts", "exit_code") if told.get(name) is not None}
    return {}


def _message(moment: Moment, act: Act | None, ruled: tuple[Ruling, ...]) -> str:
    return "; ".join(filter(None, (_happened(moment, act, ruled), _led_to(moment))))


def _happened(moment: Moment, act: Act | None, ruled: tuple[Ruling, ...]) -> str:
    if act:
        return f"{request_of(act.name)} {OUTCOMES[act.status]}"
    match moment.event:
        case ModelReplied():
            return ", ".join(filter(None, map(_ruled, ruled)))
        case SignalReceived(signal=signal):
            return f"signal {signal.kind}" + (", reopened" if moment.reopened else "")
        case event:
            return _EVENTS[type(event)]


def _ruled(ruling: Ruling) -> str:
    if ruling.status == "ok" and isinstance(ruling.decision, Ask | Wait):
        return ""
    return DONE[ruling.phase] if ruling.status == "ok" else f"{ruling.phase} {ruling.status.replace('_', ' ')}"


_EVENTS: dict[type[Any], str] = {
    WakeAccepted: "accepted",
    RunStarted: "started",
    CallReserved: "call set aside",
    ModelUnavailable: "the model gave no answer",
    CancelRequested: "cancel",
    TurnBroke: "the agent broke",
    TimerFired: "due",
    StoodStill: "goes on after a stop",
    ToolReturned: "result",
}


def _sent(pending: Pending) -> str:
    return f"{request_of(pending.name)} sent" + (f", attempt {pending.attempt}" if pending.attempt > 1 else "")


def _led_to(moment: Moment) -> str:
    match moment.after.waiting:
        case Acting() if moment.sent:
            return "; ".join(map(_sent, moment.sent))
        case Acting() if moment.retry:
            return f"attempt {moment.retry.pending.attempt} follows"
        case Thinking() if moment.put_off:
            return "asked again later"
        case Sleeping() if moment.waits:
            return "waits for an instant"
    if not moment.ended and not moment.paused:
        return ""
    match moment.after.ask:
        case Approval():
            return "waits for approval"
        case Question():
            return "asks a person"
    return moment.after.status.value
