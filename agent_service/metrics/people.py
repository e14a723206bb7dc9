"""What runs ask of people and what comes of it: how long they wait for it, and which ends an answer opens again."""

from agent_service.core.events import CancelRequested, TimerFired
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, ForAnswer, ForApproval
from agent_service.moments import Moment
from groundwork.telemetry.metrics import Instruments

WAIT_SECONDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)


class PeopleMetrics:
    """Takes every moment as it is committed."""

    def __init__(self, instruments: Instruments) -> None:
        self._waits = instruments.histogram(
            "agentic.person.wait.duration",
            "From when a person was asked to when that was decided",
            attributes=("agentic.asks", "agentic.person.outcome"),
            bounds=WAIT_SECONDS,
        )
        self._reopened = instruments.counter(
            "agentic.run.reopened",
            "Escalated runs that an answer set going again, by what they had ended of",
            unit="{run}",
            attributes=("agentic.run.reason",),
        )

    def committed(self, moment: Moment) -> None:
        before = moment.before
        if before is None or type(before.waiting) is type(moment.after.waiting):
            return
        match before.waiting:
            case ForApproval(since=since):
                self._waits.record((moment.entry.at - since).total_seconds(), "approval", _ruled(before, moment.after))
            case ForAnswer(since=since):
                self._waits.record((moment.entry.at - since).total_seconds(), "question", _answered(moment))
            case Ended(stop=stop) if moment.reopened:
                self._reopened.add(stop.ending_class)


def _ruled(before: RunState, after: RunState) -> str:
    new = after.rulings[len(before.rulings) :]
    if after.ending_class == "approval_expired":
        return "expired"
    return new[-1].verdict if new else "void"


def _answered(moment: Moment) -> str:
    match moment.event:
        case TimerFired():
            return "expired"
        case CancelRequested():
            return "void"
    return "answered"
