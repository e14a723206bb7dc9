"""What is played: which scenarios, decided by whom (a model or a script), and what is expected then."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from agent_service.admission.rate_limits import Pace
from agent_service.errors import ModelError
from agent_service.models.opening import open_model
from agent_service.run.ports import Answer, Model, ModelCall, Question
from agent_service.settings import AgentSettings
from agent_service.workbench.evaluation.expected import Expected
from agent_service.workbench.evaluation.scenario import Scenario, Script, follower_of

WAITS_S = (2.0, 10.0, 30.0, 60.0, 60.0)
LONGEST_WAIT_S = 300.0


class WaitingModel:
    """Waits in real time for a busy provider, then fails the run: nothing can be measured. Fills the port Model."""

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


OBEYING = "obeying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind:
    """`fused`: one call reflects and plans. `verifies`: claims are checked."""

    model: Model
    fused: bool
    verifies: bool = False
    short_rules: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    scenario: Scenario
    name: str
    expected: tuple[Expected, ...]
    mind: Mind


@asynccontextmanager
async def trials_of(scenarios: Sequence[Scenario], settings: AgentSettings) -> AsyncIterator[list[Trial]]:
    """For the configured model; with the scripted one, each scenario's own scripts decide. Raises Misconfigured."""
    if settings.model.provider == "scripted":
        yield [trial for scenario in scenarios for trial in scripted(scenario)]
        return
    rates, fused = settings.model, settings.phases == "fused"
    pace = Pace(requests_per_minute=rates.requests_per_minute, tokens_per_minute=rates.tokens_per_minute)
    async with open_model(settings.model) as model:
        mind = Mind(
            model=WaitingModel(model, pace),
            fused=fused,
            verifies=settings.verify and model.verifies,
            short_rules=rates.prompt == "short",
        )
        yield [of_model(scenario, mind) for scenario in scenarios]


def scripted(scenario: Scenario) -> list[Trial]:
    """With its own script and the obeying one, if any. Scripts are written for fused runs."""
    own, obeying = scenario.script, scenario.obeying
    expected = tuple(filter(None, (scenario.expect, own.expect)))
    trials = [_scripted(scenario, scenario.name, own, expected)]
    if obeying and obeying.expect:
        trials.append(_scripted(scenario, f"{scenario.name}-{OBEYING}", obeying, (obeying.expect,)))
    return trials


def of_model(scenario: Scenario, mind: Mind) -> Trial:
    return Trial(scenario=scenario, name=scenario.name, expected=(scenario.expect,), mind=mind)


def _scripted(scenario: Scenario, name: str, script: Script, expected: tuple[Expected, ...]) -> Trial:
    follower = follower_of(name, script)
    mind = Mind(model=follower, fused=True, verifies=follower.verifies)
    return Trial(scenario=scenario, name=name, expected=expected, mind=mind)
