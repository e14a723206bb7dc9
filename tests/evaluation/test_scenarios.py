"""Every scenario holds, whoever decides: the script itself, or a model on the wire that says what the script says."""

from dataclasses import replace

import pytest

from agent_service.workbench.evaluation.playing import Options, Result, play
from agent_service.workbench.evaluation.scenario import Script, own_folder, scenarios
from agent_service.workbench.evaluation.trials import Mind, Trial, scripted
from tests.evaluation.script_policy import Whispered
from tests.models import fake_anthropic

SCENARIOS = scenarios([own_folder()])
TRIALS = [trial for scenario in SCENARIOS for trial in scripted(scenario)]
by_name = pytest.mark.parametrize(
    "trial",
    [
        pytest.param(trial, id=trial.name, marks=pytest.mark.skipif(bool(why), reason=f"{why}: make setup brings it"))
        for trial in TRIALS
        for why in [trial.scenario.missing]
    ],
)


@by_name
async def test_a_scenario_holds_with_its_script(trial: Trial) -> None:
    result = await play(trial, Options())
    assert flaws(result) == []


@by_name
async def test_a_scenario_holds_with_a_model_on_the_wire_that_says_the_same(trial: Trial) -> None:
    async with fake_anthropic.serve() as claude:
        whispered = Whispered(claude.model, script_of(trial))
        claude.fake.policy = whispered.policy
        served = replace(trial, mind=lambda: Mind(model=whispered, fused=True, verifies=trial.mind().verifies))
        result = await play(served, Options())
    assert flaws(result) == []


def script_of(trial: Trial) -> Script:
    obeying = trial.scenario.obeying
    return obeying if obeying and trial.name != trial.scenario.name else trial.scenario.script


def flaws(result: Result) -> list[str]:
    return [*result.violations, *result.unmet]
