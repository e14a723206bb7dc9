"""Looking into one run: its timeline.

Everything is told from the journal. What cannot be served is a Refusal.
"""

from collections import OrderedDict

from agent_service.api.desk import unknown_run
from agent_service.core.state import RunState
from agent_service.ports import Archive, RunStore
from agent_service.telling.entries import JournalReader
from agent_service.telling.timeline import Timeline
from agent_service.telling.timeline_items import TimelineView

MOST_ENTRIES = 1_000_000
"""More than any journal has."""
REMEMBERED_RUNS = 64


class Inspection:
    """Their docstrings are the API's documentation. All methods raise Refusal (404), and what the store raises."""

    def __init__(self, store: RunStore, archive: Archive) -> None:
        self._store = store
        self._reader = JournalReader(archive)
        self._timelines: OrderedDict[str, Timeline] = OrderedDict()

    async def show_timeline(self, run_id: str) -> TimelineView:
        """What a run did, from when until when: phases, steps, attempts, waits, and what people said.

        In the order in which it began. The phases of one model call share its number; its cost is told once.
        """
        await self._state(run_id)
        timeline = self._timelines.setdefault(run_id, Timeline())
        self._timelines.move_to_end(run_id)
        if len(self._timelines) > REMEMBERED_RUNS:
            self._timelines.popitem(last=False)
        timeline.hear(await self._reader.moments(run_id, timeline.seq, MOST_ENTRIES))
        return timeline.view(run_id)

    async def _state(self, run_id: str) -> RunState:
        run = await self._store.load(run_id)
        if run is None:
            raise unknown_run()
        return run.state
