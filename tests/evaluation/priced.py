"""A model that costs something, for scenarios whose own script does not."""

from dataclasses import replace
from functools import partial

from agent_service.core.events import ModelUsage
from agent_service.core.phases import Framing
from agent_service.core.waiting import Reserve
from agent_service.errors import ModelError
from agent_service.ports import Answer, Estimate, ModelCall, Question
from agent_service.workbench.evaluation.scenario import Scenario, follower_of

PER_CALL = 790


class Priced:
    """A scripted model that costs something, and fails at first if it is told to. Fills the port Model."""

    def __init__(self, scenario: Scenario, *, faults: int = 0, hypothesis: str = "") -> None:
        self._model = follower_of(scenario.name, scenario.script)
        self._faults = faults
        self._hypothesis = hypothesis

    def prepare(self, question: Question) -> ModelCall:
        reserve = Reserve(tokens=900, cost_usd=0.02)
        estimate = Estimate(model="priced", reserve=reserve, prompt_hash="p", schema_hash=str(question.phase))
        return ModelCall(estimate=estimate, make=partial(self._make, question))

    async def _make(self, question: Question) -> Answer:
        if self._faults:
            self._faults -= 1
            raise ModelError("try_again", "overloaded", "529", retry_after_s=70)
        answer = await self._model.prepare(question).make()
        usage = ModelUsage(input_tokens=PER_CALL - 90, output_tokens=90, cost_usd=0.01, cache_read_tokens=350)
        decision = answer.decision
        if isinstance(decision, Framing):
            decision = replace(decision, hypothesis=self._hypothesis)
        return replace(answer, model="priced", usage=usage, decision=decision)
