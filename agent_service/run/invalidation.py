"""Invalidates cached runs and in-flight model calls when another process of the same store commits.

Nothing rests on these messages: a missed one is made good by the store's version.
"""

from agent_service.background import Background
from agent_service.run.changes import Elsewhere
from agent_service.run.model_calls import ModelCaller
from agent_service.run.ports import RunStore
from agent_service.run.turn import Turns


class Overtaken:
    def __init__(self, turns: Turns, model_caller: ModelCaller, store: RunStore, background: Background) -> None:
        self._turns = turns
        self._model_caller = model_caller
        self._store = store
        self._background = background

    def hear(self, told: Elsewhere) -> None:
        self._turns.forget(told.run_id, told.entry.seq)
        if self._model_caller.calls_of(told.run_id):
            self._background.start(self._look(told.run_id))

    async def _look(self, run_id: str) -> None:
        run = await self._store.load(run_id)
        asks = run.state.calling if run else None
        for call, since in self._model_caller.calls_of(run_id).items():
            if asks is None or asks.call != call or await self._store.superseded(run_id, call, since):
                self._model_caller.abandon(run_id, call)
