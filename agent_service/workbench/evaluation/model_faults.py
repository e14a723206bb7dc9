"""A model under the circumstances of a scenario: thinking takes time, and some calls bring no answer.

They are the same whichever model is asked, so that the program's part in them shows with every model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial

from agent_service.core.events import ModelUsage
from agent_service.core.phases import Refusal, Unusable
from agent_service.errors import ModelError
from agent_service.ports import Answer, Model, ModelCall, Question
from agent_service.workbench.evaluation.played_clock import PlayedClock
from agent_service.workbench.evaluation.scenario import ModelFault, Scenario

THINKING_S = 5.0
LOOK_AGAIN_S = 300.0
NAME = "played"
"""Who gives an answer that a scenario puts in the model's place."""


class Circumstances:
    """Fills the port Model, around another one."""

    def __init__(self, model: Model, scenario: Scenario, clock: PlayedClock) -> None:
        self._model = model
        self._clock = clock
        self._faults = {fault.call: fault for fault in scenario.model_faults}
        self._price_unknown = scenario.price_unknown
        self._outages: dict[int, datetime] = {}
        """Until when, by the call that met it first."""
        self.broke: Exception | None = None
        """What the model raised that says nothing of what to do: the loop would make it an ending of the run."""

    def prepare(self, question: Question) -> ModelCall:
        with self._noting():
            call = self._model.prepare(question)
        estimate = call.estimate
        if estimate and self._price_unknown:
            estimate = replace(estimate, reserve=replace(estimate.reserve, cost_usd=None))
        return ModelCall(estimate=estimate, make=partial(self._make, call, question))

    async def _make(self, call: ModelCall, question: Question) -> Answer:
        self._clock.advance(THINKING_S)
        fault = self._faults.get(question.call)
        answer = self._in_its_place(fault) if fault else None
        if answer is None:
            with self._noting():
                answer = await call.make()
        if not self._price_unknown:
            return answer
        return replace(answer, usage=replace(answer.usage, cost_usd=None))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:
            self.broke = error
            raise

    def _in_its_place(self, fault: ModelFault) -> Answer | None:
        usage = ModelUsage(cost_usd=0.0)
        if fault.refusal is not None:
            return Answer(decision=Refusal(category=fault.refusal), usage=usage, model=NAME)
        if fault.cut:
            reason = "the reply was cut at its most tokens"
            return Answer(decision=Unusable(reason=reason, cut=True), usage=usage, model=NAME)
        if self._is_out(fault):
            raise ModelError("try_again", "model_unavailable", "the provider is down", retry_after_s=LOOK_AGAIN_S)
        return None

    def _is_out(self, fault: ModelFault) -> bool:
        until = self._outages.setdefault(fault.call, self._clock.later(fault.outage_s or 0.0))
        return self._clock.now() < until
