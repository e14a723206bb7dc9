"""Looking into one run: its timeline, its steps in full, and what the model was told and said.

Everything is told from the journal. What cannot be served is a Refusal.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Path

from agent_service.api.absent import absent
from agent_service.api.refusals import Refusal
from agent_service.moments import Moment
from agent_service.ports import Archive, PromptText, Question, RunStore
from agent_service.telling.entries import MOST_ENTRIES, JournalReader
from agent_service.telling.model_calls import CallView, call_view, made_call
from agent_service.telling.steps import StepDetail, step_detail
from agent_service.telling.timeline import Timeline
from agent_service.telling.timeline_items import TimelineView

REMEMBERED_RUNS = 64

Number = Annotated[int, Path(ge=1, lt=2**31)]


class Inspection:
    """Their docstrings are the API's documentation. All methods raise Refusal (404), and what the store raises.

    `prompt_of` gives the prompt that asks a question.
    """

    def __init__(self, store: RunStore, archive: Archive, prompt_of: Callable[[Question], PromptText]) -> None:
        self._store = store
        self._reader = JournalReader(archive)
        self._prompt_of = prompt_of
        self._timelines: OrderedDict[str, Timeline] = OrderedDict()

    async def show_timeline(self, run_id: str) -> TimelineView:
        """What a run did, from when until when: phases, steps, attempts, waits, and what people said.

        In the order in which it began. The phases of one model call share its number; its cost is told once.
        """
        await self._check(run_id)
        timeline = self._timelines.setdefault(run_id, Timeline())
        self._timelines.move_to_end(run_id)
        if len(self._timelines) > REMEMBERED_RUNS:
            self._timelines.popitem(last=False)
        timeline.hear(await self._reader.moments(run_id, timeline.seq, MOST_ENTRIES))
        return timeline.view(run_id)

    async def show_step(self, run_id: str, step: Number) -> StepDetail:
        """One step in full: its arguments, why it was planned, and all that came back of each attempt."""
        found = step_detail(await self._moments(run_id), step)
        if found is None:
            raise Refusal(404, "unknown_step", "the run has not taken this step", run_id=run_id)
        return found

    async def show_call(self, run_id: str, call: Number) -> CallView:
        """One model call: what the model was told, and what it said."""
        made = made_call(await self._moments(run_id), call)
        if made is None:
            raise Refusal(404, "unknown_call", "the run has not made this model call", run_id=run_id)
        return call_view(made, self._prompt_of(made.question()))

    async def _moments(self, run_id: str) -> Sequence[Moment]:
        await self._check(run_id)
        return await self._reader.moments(run_id, 0, MOST_ENTRIES)

    async def _check(self, run_id: str) -> None:
        if await self._store.load(run_id) is None:
            raise await absent(self._store, run_id)
