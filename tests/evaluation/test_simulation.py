"""Simulated tools, persons, models and time of a scenario."""

import asyncio
import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.errors import ModelError
from agent_service.models.scripted_model import ScriptedModel
from agent_service.run.ports import ModelCall, ModelQuestion
from agent_service.workbench.evaluation import simulated
from agent_service.workbench.evaluation.simulated import RETRY_PAUSES_S, START_TIME, patiently
from agent_service.workbench.evaluation.trials import evaluate, play, scripted
from ductile_gateway.cli.tools import make
from tests.evaluation.small_scenario import SMALL, seen_of, small
from tests.models.model_house import framing


class Failing:
    """Model that fails `times` times. Implements the port Model."""

    is_free = True

    def __init__(self, times: int, error: Exception) -> None:
        self.asked = 0
        self._times = times
        self._error = error
        self._model = ScriptedModel(name="small", rules=small().script.rules)

    def prepare(self, question: ModelQuestion) -> ModelCall:
        call = self._model.prepare(question)
        return replace(call, make=partial(self._make, call))

    async def _make(self, call: ModelCall) -> ModelReplied:
        self.asked += 1
        if self.asked <= self._times:
            raise self._error
        answer = await call.make()
        return replace(answer, usage=ModelUsage(input_tokens=5))


def busy(times: int, wait_s: float | None = None) -> Failing:
    return Failing(times, ModelError("try_again", "overloaded", "529", wait_s))


async def test_a_plugin_of_a_folder_takes_part_as_it_is_and_one_that_never_answers_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make("words", "bash", tmp_path / "tools") / "run.sh"
    rules: list[dict[str, Any]] = copy.deepcopy(SMALL["script"]["rules"])
    rules[1]["plan"] = {"action": {"tool": "words", "command": "handle", "arguments": {"text": "it is on"}}}
    own = {"plugin": "words", "folder": str(tmp_path / "tools")}
    for told in ("3 words, the longest is it", "the plugin gave no answer in 0.2 s"):
        (folder := tmp_path / told).mkdir()
        seen = await seen_of(small(plugins=[own], script={"rules": rules}), folder)
        assert seen.state is not None
        assert seen.state.completed[0].summary == told
        program.write_text("#!/bin/sh\nsleep 600\nexit 1\n")
        monkeypatch.setattr(simulated, "PLUGIN_LASTS_S", 0.2)


async def test_time_passes_as_it_is_told_and_is_not_waited_for(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    slow = SMALL["tools"][0] | {"answers": [{"result": {"summary": "it is on"}, "takes_s": 250}]}
    seen = await seen_of(small(tools=[slow]), tmp_path)
    assert loop.time() - began < 30
    assert seen.state is not None
    assert seen.state.accepted_at == START_TIME
    assert seen.state.completed[0].seconds == 250
    assert seen.state.ended_at == START_TIME + timedelta(seconds=250 + 3 * 5)


async def test_a_scenario_that_breaks_leaves_the_others_their_results() -> None:
    failing = Failing(99, ZeroDivisionError("at the seams"))
    broken = replace(scripted(small(name="broken"))[0], model=failing)
    told: list[str] = []
    results = await evaluate([broken, *scripted(small())], jobs=2, on_result=lambda result: told.append(result.name))
    assert [result.name for result in results] == ["broken", "small"]
    assert sorted(told) == ["broken", "small"]
    assert [result.passed for result in results] == [False, True]


async def test_a_run_without_an_end_is_stopped() -> None:
    """The model never answers, and the deadline is far away."""
    away = {"remedy": "try_again", "error_class": "model_unavailable", "message": "away", "retry_after_s": 60}
    rules = [{"phase": "frame", "fault": away}]
    scenario = small(script={"rules": rules}, constraints={"deadline_s": 29 * 86400})
    result = await play(scripted(scenario)[0])
    assert "entries and goes on" in result.unmet[0]


async def test_the_paper_trail_is_kept_where_it_is_wanted_and_costs_no_result_where_it_cannot_be(
    tmp_path: Path,
) -> None:
    (file := tmp_path / "file").touch()
    for trail, told in ((tmp_path / "trail", ()), (file, (f"FileExistsError: [Errno 17] File exists: '{file}'",))):
        result = await play(scripted(small())[0], trail)
        assert (result.status, result.unmet) == ("done", told)
    assert "Switch the lamp on." in (tmp_path / "trail" / result.run_id / "context.md").read_text()


async def test_a_busy_provider_is_waited_for_in_real_time_and_fails_the_run_where_it_stays_so() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    for model, waited in (
        (busy(0), []),
        (busy(2), [2.0, 10.0]),
        (busy(2, wait_s=45.0), [45.0, 45.0]),
        (busy(1, wait_s=9e3), [300.0]),
    ):
        slept.clear()
        answer = await patiently(model.prepare(framing()), sleep)
        assert (answer.usage.input_tokens, slept) == (5, waited)
    slept.clear()
    with pytest.raises(ModelError, match="529; 6 tries were in vain") as failed:
        await patiently((model := busy(99)).prepare(framing()), sleep)
    assert (failed.value.remedy, model.asked, slept) == ("fail", 6, list(RETRY_PAUSES_S))
