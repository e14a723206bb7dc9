"""What a tool asks of others is held against their schemas before anything is asked."""

from typing import Any

import pytest

from agent_service.core.events import ToolReturned
from agent_service.core.state import RunState
from agent_service.run.schema_check import unfit
from schemas.events import ToolResult
from tests.core.cues import FETCH, POST, a_task, continues, frames, multi_step, plans, queued, started
from tests.core.script import Script

SCHEMA: dict[str, Any] = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}
STRICT = SCHEMA | {"additionalProperties": False}


def a_run(schema: dict[str, Any]) -> Script:
    command = POST.commands[0].model_copy(update={"input_schema": schema})
    skills = (FETCH, POST.model_copy(update={"commands": (command,)}))
    return queued() >> started(skills) >> frames() >> plans("fetch")


def result_of(run: Script, *tasks: dict[str, Any]) -> tuple[RunState, ToolResult]:
    asking = as_far_as(run) >> continues(multi_step(*tasks))
    event = asking.story[-1].event
    assert isinstance(event, ToolReturned)
    return run.state, event.result


def as_far_as(run: Script) -> Script:
    other = Script()
    other.story, other.now = list(run.story), run.now
    return other


def test_arguments_that_do_not_fit_are_named_with_their_task() -> None:
    (flaw,) = unfit(*result_of(a_run(SCHEMA), a_task("good", "post", to="ann"), a_task("bad", "post", n=1)))
    assert flaw.startswith("bad: ")
    assert "to" in flaw


@pytest.mark.parametrize("schema", [STRICT, {**STRICT, "properties": {"to": {"type": "string"}, "evidence": {}}}])
def test_what_a_task_is_given_besides_is_no_flaw(schema: dict[str, Any]) -> None:
    tasks = (a_task("first", "post", to="ann"), a_task("second", "post", after=("first",), to="bob"))
    assert unfit(*result_of(a_run(schema), *tasks)) == ()


def test_a_continuation_that_does_not_fit_ends_its_step_before_anything_is_asked() -> None:
    run = a_run(SCHEMA)
    state, result = result_of(run, a_task("bad", "post", n=1))
    run = run >> ToolReturned(at=run.now, result=result, unfit=unfit(state, result))
    assert run.outcomes == ("ask reflect",)
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "bad_continuation"
