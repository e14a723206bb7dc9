"""The scripted decision maker of a scenario: its script, and all facts kept when the notes are compacted."""

from agent_service.adapters import scripted_model
from agent_service.core.events import ModelUsage
from agent_service.core.phases import Digest, Phase
from agent_service.evaluation.scenario import Script
from agent_service.ports import Answer, Estimate, Question


class ScenarioModel:
    """Fills the port Model. It does not think, and says so in its name."""

    def __init__(self, name: str, script: Script) -> None:
        self._script = scripted_model.ScriptedModel(scripted_model.Script(name=name, rules=script.rules))
        self._name = f"script:{name}"

    def estimate(self, question: Question) -> Estimate | None:
        return self._script.estimate(question)

    async def decide(self, question: Question) -> Answer:
        if question.phase is Phase.COMPACT:
            digest = Digest(memory=question.state.facts)
            return Answer(decision=digest, usage=ModelUsage(cost_usd=0.0), model=self._name)
        return await self._script.decide(question)
