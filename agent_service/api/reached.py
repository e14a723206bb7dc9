"""How runs stood when they were last told of here: so that what another process commits becomes a moment at once.

What was committed elsewhere is told with its entry alone. Where the run's state before it is known, the moment follows
from both, as it does when a journal is read; else whoever follows the run reads its journal.
"""

from collections import OrderedDict

from agent_service.core.state import RunState
from agent_service.errors import Damaged
from agent_service.moments import Elsewhere, Moment, tell

MOST_RUNS = 4096


class Reached:
    def __init__(self) -> None:
        self._states: OrderedDict[str, RunState] = OrderedDict()

    def note(self, state: RunState) -> None:
        known = self._states.get(state.run_id)
        if known is None or known.version < state.version:
            self._states[state.run_id] = state
            self._states.move_to_end(state.run_id)
        if len(self._states) > MOST_RUNS:
            self._states.popitem(last=False)

    def moment(self, one: Elsewhere) -> Moment | None:
        before = self._states.get(one.run_id)
        if (before.version if before else 0) != one.entry.seq - 1:
            return None
        try:
            moment = tell(before, one.entry)
        except (Damaged, ValueError):  # readers of the journal are told what is wrong with it
            return None
        self.note(moment.after)
        return moment

    def forget(self) -> None:
        self._states.clear()
