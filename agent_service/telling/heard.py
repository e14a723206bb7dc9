"""What a journal says of a run beyond its state: the newest results, the models, wishes for more."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent_service.core.events import ModelReplied, ToolReturned
from agent_service.run.journal import Entry
from agent_service.telling.acts import OWN, Execution, execution_of, said_by
from schemas.events import ToolError, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestResult:
    """Also one that came after the run's end."""

    tool: str
    attempt: int | None
    status: str
    summary: str
    error: ToolError | None
    execution: Execution | None


class Heard:
    """Takes up a journal bit by bit: `seq` is its last entry. `gathered`: whether a tool asked for more."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.seq = 0
        self.results: dict[int, NewestResult] = {}
        self.gathered = False
        self.models: dict[str, None] = {}
        self.hear(entries)

    def hear(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.seq <= self.seq:  # somebody else has read it meanwhile
                continue
            match entry.decoded() if entry.kind in _HEARD else None:
                case ToolReturned(result=result):
                    self.gathered = self.gathered or result.status == "continuation"
                    if result.task in OWN:
                        self.results[result.step] = _newest(result)
                case ModelReplied(model=model):
                    self.models[model] = None
            self.seq = entry.seq


_HEARD = frozenset({ToolReturned.__name__, ModelReplied.__name__})


def _newest(result: ToolResult) -> NewestResult:
    return NewestResult(
        tool=result.tool,
        attempt=result.attempt,
        status=result.status,
        summary=said_by(result),
        error=result.error if result.status == "error" else None,
        execution=execution_of(result),
    )
