"""The scripted model: the first matching rule answers deterministically and identifies itself as a script; scripts
are reviewed before use."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import JsonValue

from agent_service.core.phases import Digest, Framing, Phase, Plan, Reflection, Unusable
from agent_service.core.planning import plan_flaws
from agent_service.core.waiting import OpenCall, Thinking
from agent_service.errors import ModelError
from agent_service.models.scripted_model import ScriptedModel, read_script
from agent_service.models.settings import ModelSettings
from groundwork.service.errors import Misconfigured
from schemas.values import replace
from tests.cli.invoke import agentic_here
from tests.kit.pages import ROOT
from tests.models.model_house import framing, planning, question, reflecting, separate

FRAME = {"goal_statement": "It is done.", "definition_of_done": ["a", "b", "c"]}
PLAN = {"action": {"tool": "search", "command": "query", "arguments": {"text": "$goal, step $step"}}}
REFLECT = {"verdict": "continue", "summary": "seen"}


def following(*rules: dict[str, Any]) -> ScriptedModel:
    return ScriptedModel.model_validate({"name": "small", "rules": rules})


@pytest.mark.parametrize("asked", [framing(), reflecting()])
async def test_a_plan_beside_a_framing_or_a_reflection_comes_along_in_a_fused_run_only(asked: Any) -> None:
    model = following(
        {"phase": "frame", "frame": FRAME, "plan": PLAN},
        {"phase": "reflect", "reflect": REFLECT, "plan": PLAN},
    )
    fused, apart = await model.prepare(asked).make(), await model.prepare(separate(asked)).make()
    assert isinstance(fused.decision, Framing | Reflection)
    assert isinstance(fused.plan, Plan)
    assert apart.decision == fused.decision
    assert apart.plan is None


async def test_names_and_what_the_newest_result_says_are_put_into_texts() -> None:
    model = following(
        {"phase": "plan", "plan": PLAN},
        {"phase": "reflect", "reflect": {"verdict": "escalate", "summary": "It said: $result"}},
    )
    planned = (await model.prepare(planning()).make()).decision
    assert isinstance(planned, Plan)
    assert planned.action.arguments == {"text": "Find the answer., step 0"}
    results: tuple[dict[str, JsonValue], ...] = (
        {"summary": "21 °C"},
        {"class": "tool_error", "message": "21 °C"},
    )
    for newest in results:
        state = replace(reflecting().state, last_output=newest)
        reflected = (await model.prepare(replace(reflecting(), state=state)).make()).decision
        assert isinstance(reflected, Reflection)
        assert reflected.summary == "It said: 21 °C"


async def test_the_demo_script_says_that_no_model_is_set_where_its_tools_are_not_on_offer() -> None:
    model, asked = read_script(ModelSettings().script_file()), planning()
    plan = (await model.prepare(asked).make()).decision
    assert isinstance(plan, Plan)
    open_call = OpenCall(call=9, phase=Phase.PLAN, flaws=tuple(plan_flaws(asked.state, plan)))
    again = replace(asked, state=replace(asked.state, waiting=Thinking(asking=open_call)))
    given_up = (await model.prepare(again).make()).decision
    assert isinstance(given_up, Reflection)
    assert "No model is set" in given_up.summary


async def test_a_script_that_knows_nothing_of_compaction_keeps_every_fact() -> None:
    state = replace(reflecting().state, facts=("one", "two"))
    answer = await following({"phase": "plan", "plan": PLAN}).prepare(question(state, Phase.COMPACT)).make()
    assert answer.decision == Digest(memory=("one", "two"))


async def test_an_unusable_reply_and_a_fault_are_as_the_script_says_and_a_script_that_ends_fails_the_run() -> None:
    fault = {"remedy": "try_again", "error_class": "overloaded", "message": "later", "retry_after_s": 7}
    model = following({"phase": "frame", "unusable": "no JSON"}, {"phase": "plan", "fault": fault})
    assert (await model.prepare(framing()).make()).decision == Unusable(reason="no JSON")
    with pytest.raises(ModelError) as caught:
        await model.prepare(planning()).make()
    assert (caught.value.remedy, caught.value.error_class, caught.value.retry_after_s) == ("try_again", "overloaded", 7)
    with pytest.raises(ModelError, match="no rule for reflect after 1 steps") as caught:
        await model.prepare(reflecting()).make()
    assert caught.value.remedy == "fail"


# Scripts before they are used: what is wrong, what is left open


FRAMES: dict[str, Any] = {"phase": "frame", "frame": {**FRAME, "goal_statement": "$goal"}}
ACTION = {"tool": "echo", "command": "handle", "arguments": {"message": "$goal"}}
PLANS = {"phase": "plan", "plan": {"action": ACTION}}
MET = {"item": "d1", "evidence": "step:1"}
DONE: dict[str, Any] = {"phase": "reflect", "reflect": {"verdict": "done", "summary": "It is."}}
FOLDERS = ("examples/*", "tests/*", "agent_service/scripts/*")


def written(folder: Path, *rules: dict[str, Any]) -> Path:
    file = folder / "script.yaml"
    file.write_text(yaml.safe_dump({"name": "one", "rules": list(rules)}))
    return file


def test_of_the_scripts_that_come_along_none_leaves_anything_open() -> None:
    files = [file for folder in FOLDERS for file in ROOT.glob(f"{folder}/script.yaml")]
    assert files
    assert [(file, advice) for file in files for advice in read_script(file).advice()] == []


def test_what_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    for rule, told in (
        ({**DONE, "reflect": {**DONE["reflect"], "met": [{**MET, "qoute": "x"}]}}, "reflect.met.0.qoute: is not known"),
        ({**PLANS, "ask": {"question": "which?"}}, "exactly one of"),
        ({**PLANS, "when": {"goal": "("}}, "rules.1.when.goal: must be a valid regular expression"),
        ({"phase": "fram", "unusable": "x"}, "rules.1.phase: .*'frame', 'plan', 'reflect'"),
        ({**FRAMES, "frame": {**FRAMES["frame"], "definition_of_done": ["a"]}}, "rules.1: .* 3 to 7 items"),
        ({**DONE, "phase": "plan"}, "rules.1: in phase plan the only verdict of `reflect` is escalate"),
        ({**DONE, "phase": "verify"}, "rules.1: `reflect` answers no question of phase verify"),
    ):
        with pytest.raises(Misconfigured, match=rf"script {tmp_path}/script\.yaml: .*{told}"):
            read_script(written(tmp_path, FRAMES, rule))


def test_what_is_no_yaml_is_told(tmp_path: Path) -> None:
    for text in ("name: 2024-13-45", "name: !!int ''", f"name: {'[' * 3000}", "{name: a, name: b}"):
        (tmp_path / "script.yaml").write_text(text)
        with pytest.raises(Misconfigured, match=r"script\.yaml cannot be read"):
            read_script(tmp_path / "script.yaml")


def test_what_is_left_open_is_told_and_keeps_nobody(tmp_path: Path) -> None:
    misspelt = {**PLANS, "plan": {"action": {**ACTION, "arguments": {"m": "$gaol"}}}}
    for rules, told in (
        ((FRAMES, PLANS), "no rule of phase reflect"),
        ((FRAMES, PLANS, DONE, {**PLANS, "when": {"steps": 2}}), "rules.3 is never used: rules.1 answers every plan"),
        ((FRAMES, misspelt, DONE), "rules.1: $gaol stands"),
    ):
        assert any(told in advice for advice in read_script(written(tmp_path, *rules)).advice()), told


def test_the_command_says_what_is_wrong_and_ends_with_78(tmp_path: Path) -> None:
    file = written(tmp_path, FRAMES, PLANS, DONE)
    good = agentic_here("script", "check", file)
    assert (good.code, good.out) == (0, f"✓ {file}: one, 3 rules\n")
    written(tmp_path, {"phase": "plan"})
    bad = agentic_here("script", "check", file, "--json")
    assert (bad.code, ["exactly one of" in flaw for flaw in bad.document[0]["flaws"]]) == (78, [True])
