"""What happened in a run, beyond how it ended, read from its journal."""

from collections.abc import Callable

from agent_service.core.events import CancelRequested, ModelReplied, ModelUnavailable
from agent_service.core.phases import Digest
from agent_service.core.waiting import Status
from agent_service.workbench.evaluation.expected import Happening
from agent_service.workbench.evaluation.observed import Moment, Observed


def happenings(seen: Observed) -> dict[Happening, int]:
    """Everything that happened, with the number of the first entry in which it did."""
    found: dict[Happening, int] = {}
    for moment in seen.moments:
        for happening, is_one in _SIGNS.items():
            if happening not in found and is_one(moment):
                found[happening] = moment.seq
    return found


def _compaction(moment: Moment) -> bool:
    return isinstance(moment.event, ModelReplied) and isinstance(moment.event.decision, Digest)


def _model_wait(moment: Moment) -> bool:
    return isinstance(moment.event, ModelUnavailable) and moment.event.remedy == "try_again"


def _late_result(moment: Moment) -> bool:
    return len(moment.state.late) > (len(moment.before.late) if moment.before else 0)


def _cancel_while_pending(moment: Moment) -> bool:
    return isinstance(moment.event, CancelRequested) and moment.before is not None and moment.before.pending is not None


_SIGNS: dict[Happening, Callable[[Moment], bool]] = {
    "cancel_while_pending": _cancel_while_pending,
    "compaction": _compaction,
    "done_refused": lambda moment: moment.state.refused_done > 0,
    "late_result": _late_result,
    "model_wait": _model_wait,
    "pause": lambda moment: moment.state.status is Status.PAUSED,
    "reframe": lambda moment: moment.state.reframes > 0,
    "repair": lambda moment: moment.state.asking is not None and moment.state.asking.repairs > 0,
    "retry": lambda moment: moment.state.pending is not None and moment.state.pending.attempt > 1,
}
