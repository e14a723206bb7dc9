"""The scripted model: the first rule that fits answers, always the same, and says that it is a script."""

from pathlib import Path
from typing import Any

import pytest

from agent_service.core.phases import (
    Ask,
    Digest,
    Framing,
    Phase,
    Plan,
    Reflection,
    Unusable,
    Verdict,
)
from agent_service.core.state import LastResult, replace
from agent_service.errors import ModelError
from agent_service.models.scripted_model import Script, ScriptedModel, read_script
from groundwork.service.errors import Misconfigured
from tests.models.model_house import framing, planning, question, reflecting, separate

FRAME = {"goal_statement": "It is done.", "definition_of_done": ["a", "b", "c"]}
PLAN = {"action": {"tool": "search", "command": "query", "arguments": {"text": "$goal, step $step"}}}
REFLECT = {"verdict": "continue", "summary": "seen"}


def following(*rules: dict[str, Any]) -> ScriptedModel:
    return ScriptedModel(Script.model_validate({"name": "small", "rules": rules}))


async def test_the_first_rule_that_fits_answers() -> None:
    model = following(
        {"phase": "reflect", "when": {"steps": 2}, "unusable": "not yet"},
        {"phase": "reflect", "when": {"steps": 1, "status": "ok"}, "reflect": REFLECT},
        {"phase": "reflect", "unusable": "too late"},
    )
    answer = await model.prepare(reflecting()).make()
    assert answer.decision == Reflection(verdict=Verdict.CONTINUE, summary="seen")
    assert answer.model == "script:small"
    assert answer.usage.cost_usd == 0.0


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


ASK = {"question": "Which $tool?", "choices": ["a", "b"]}
WAIT = {"why": "it is printed at noon", "seconds": 60}


async def test_a_rule_may_wait_for_what_a_person_said() -> None:
    model = following(
        {"phase": "frame", "when": {"person": "lemon"}, "frame": FRAME},
        {"phase": "frame", "ask": ASK},
    )
    unanswered, answered = framing(), framing()
    answered = replace(answered, state=replace(answered.state, messages=("the lemon one",)))
    said = [(await model.prepare(asked).make()).decision for asked in (unanswered, answered)]
    assert [type(decision) for decision in said] == [Ask, Framing]


async def test_names_are_put_into_texts() -> None:
    answer = await following({"phase": "plan", "plan": PLAN}).prepare(planning()).make()
    assert isinstance(answer.decision, Plan)
    assert answer.decision.action.arguments == {"text": "Find the answer., step 0"}


@pytest.mark.parametrize(
    "newest",
    [
        LastResult(step=1, status="ok", output={"summary": "21 °C"}),
        LastResult(step=1, status="error", output={"class": "tool_error", "message": "21 °C"}),
    ],
    ids=["ok", "error"],
)
async def test_what_the_newest_result_says_may_be_said_again(newest: LastResult) -> None:
    state = replace(reflecting().state, last_result=newest)
    rule = {"phase": "reflect", "reflect": {"verdict": "escalate", "summary": "It said: $result"}}
    answer = await following(rule).prepare(replace(reflecting(), state=state)).make()
    assert isinstance(answer.decision, Reflection)
    assert answer.decision.summary == "It said: 21 °C"


async def test_a_script_that_knows_nothing_of_compaction_keeps_every_fact() -> None:
    state = replace(reflecting().state, facts=("one", "two"))
    answer = await following({"phase": "plan", "plan": PLAN}).prepare(question(state, Phase.COMPACT)).make()
    assert answer.decision == Digest(memory=("one", "two"))


async def test_an_unusable_reply_and_a_fault_are_as_the_script_says() -> None:
    fault = {"remedy": "try_again", "error_class": "overloaded", "message": "later", "retry_after_s": 7}
    model = following({"phase": "frame", "unusable": "no JSON"}, {"phase": "plan", "fault": fault})
    assert (await model.prepare(framing()).make()).decision == Unusable(reason="no JSON")
    with pytest.raises(ModelError) as caught:
        await model.prepare(planning()).make()
    assert (caught.value.remedy, caught.value.error_class, caught.value.retry_after_s) == ("try_again", "overloaded", 7)


async def test_a_script_that_ends_fails_the_run_and_says_what_is_missing() -> None:
    with pytest.raises(ModelError, match="script:small has no rule for reflect after 1 steps: add one") as caught:
        await following({"phase": "plan", "plan": PLAN}).prepare(reflecting()).make()
    assert caught.value.remedy == "fail"


@pytest.mark.parametrize(
    "rule",
    [
        {"phase": "plan"},
        {"phase": "plan", "plan": PLAN, "unusable": "x"},
        {"phase": "frame", "frame": FRAME, "reflect": REFLECT},
        {"phase": "plan", "plan": PLAN, "wait_s": -1},
        {"phase": "nap", "plan": PLAN},
        {"phase": "plan", "plan": PLAN, "when": {"step": 1}},
    ],
)
def test_a_rule_that_makes_no_sense_is_named_with_its_file(tmp_path: Path, rule: dict[str, Any]) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(f"name: small\nrules: [{rule}]\n".replace("None", "null"))
    with pytest.raises(Misconfigured, match=r"script .*script\.yaml: rules\.0"):
        read_script(file)
