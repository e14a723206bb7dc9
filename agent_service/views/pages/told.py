"""What pages are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.run.journal import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run as it stands, its whole journal, and the history that is folded from it."""

    run: RunState
    records: Sequence[Record]
    history: History
