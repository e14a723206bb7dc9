"""A model that is waited for in real time: the clock of a run is played, and leaves a busy provider no pause."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from agent_service.errors import ModelError
from agent_service.pace import Pace
from agent_service.ports import Answer, Model, ModelCall, Question

WAITS_S = (2.0, 10.0, 30.0, 60.0, 60.0)
LONGEST_WAIT_S = 300.0


class Patient:
    """Fills the port Model, around another one. When all waiting is in vain the run fails: nothing can be measured."""

    def __init__(self, model: Model, pace: Pace, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._model = model
        self._pace = pace
        self._sleep = sleep

    def prepare(self, question: Question) -> ModelCall:
        call = self._model.prepare(question)
        return replace(call, make=partial(self._patiently, call))

    async def _patiently(self, call: ModelCall) -> Answer:
        for wait_s in (*WAITS_S, None):
            try:
                return await self._paced(call)
            except ModelError as error:
                if error.remedy != "try_again":
                    raise
                if wait_s is None:
                    why = f"{error}; {len(WAITS_S) + 1} tries were in vain: evaluate again later"
                    raise ModelError("fail", error.error_class, why) from error
                longer_s = min(max(wait_s, error.retry_after_s or 0.0), LONGEST_WAIT_S)
            await self._sleep(longer_s)
        raise AssertionError("the last try returns or raises")

    async def _paced(self, call: ModelCall) -> Answer:
        admitted, used = (call.estimate.reserve.tokens if call.estimate else 0), 0
        await self._pace.admit(admitted)
        try:
            answer = await call.make()
            used = answer.usage.input_tokens + answer.usage.output_tokens
        finally:
            self._pace.settle(admitted, used)
        return answer
