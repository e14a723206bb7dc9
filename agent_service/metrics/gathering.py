"""What tools ask for before they can answer: how often, and what becomes of it."""

from agent_service.core.events import ToolReturned
from agent_service.metrics.classes import NONE, known_class
from agent_service.moments import Moment
from groundwork.telemetry.metrics import Instruments


class GatheringMetrics:
    """Takes every moment as it is committed."""

    def __init__(self, instruments: Instruments) -> None:
        self._continuations = instruments.counter(
            "agentic.tool.continuations",
            "Results of tools that ask for more first, by what became of that",
            unit="{continuation}",
            attributes=("gen_ai.tool.name", "agentic.continuation.outcome"),
        )
        self._tasks = instruments.counter(
            "agentic.tool.tasks",
            "Tasks of steps that are over",
            unit="{task}",
            attributes=("gen_ai.tool.name", "agentic.tool.outcome", "error.type"),
        )

    def committed(self, moment: Moment) -> None:
        for known in moment.gathered:
            error = NONE if known.status == "ok" else known_class(str(known.output.get("class")))
            self._tasks.add(known.tool, known.status, error)
        match moment.event:
            case ToolReturned(result=result) if result.status == "continuation" and moment.answered:
                self._continuations.add(moment.answered.action.tool, _outcome(moment))


def error_of_wish(moment: Moment) -> str:
    return _ERRORS[_outcome(moment)]


def _outcome(moment: Moment) -> str:
    if moment.asks_for_more:
        return "followed"
    return "budget" if any(record.status == "budget" for record in moment.finished) else "refused"


_ERRORS = {"followed": NONE, "budget": "budget", "refused": "bad_continuation"}
