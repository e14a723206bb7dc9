"""Nothing that a model, a tool, a provider or a caller writes can break a run: the core raises for no event."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_service.core.events import CancelRequested
from agent_service.core.phases import Action, Plan
from schemas.events import ToolError
from tests.core.cues import (
    PROOF,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    errs,
    frames,
    framing,
    garbles,
    goes_on,
    plans,
    reflection,
    replies,
    returns,
    unavailable,
)
from tests.core.script import NOON, Cue, Script

WRITTEN: dict[str, Callable[[str], Script]] = {
    "goal statement": lambda text: a_framing_run() >> replies(replace(framing(), goal_statement=text)),
    "done item": lambda text: (
        a_framing_run()
        >> frames(f"item {text}", "b", "c")
        >> plans()
        >> returns()
        >> replies(reflection("done", PROOF))
    ),
    "argument": lambda text: a_planning_run() >> plans("fetch", url=text),
    "argument's name": lambda text: (
        a_planning_run() >> replies(Plan(action=Action(tool="fetch", command="handle", arguments={text: 1})))
    ),
    "summary": lambda text: a_reflecting_run(fused=False) >> replies(replace(reflection("continue"), summary=text)),
    "reason to escalate": lambda text: a_reflecting_run() >> replies(replace(reflection("escalate"), summary=text)),
    "outcome": lambda text: a_reflecting_run() >> replies(replace(reflection("done", PROOF), outcome=text)),
    "why a reply is unusable": lambda text: a_framing_run(max_repairs=0) >> garbles(text),
    "class of a tool's error": lambda text: a_waiting_run() >> errs(text[:64], retryable=True),
    "provider's message": lambda text: a_planning_run() >> unavailable("fail", message=text),
    "reason to cancel": lambda text: a_waiting_run() >> CancelRequested(at=NOON, reason=text),
}


@pytest.mark.parametrize("where", WRITTEN)
@pytest.mark.parametrize("text", ["", " ", "\n# heading", "x" * 100_000, "\x1b[31m", "\u202e", "🜁"])
def test_any_text_can_be_told(where: str, text: str) -> None:
    assert WRITTEN[where](text).story[-1].transition.ignored is None


@pytest.mark.parametrize(
    "cue",
    [
        returns(output={"summary": {"not": "text"}, "message": 7, "excerpt": ""}),
        returns(output={"run_id": "run_other", "step": 9, "status": "error", "model_dump": 1, "artifacts": [[]]}),
        returns(output={"deep": [[[[[[{}]]]]]], "big": 10**400}),
        returns("ok", error=ToolError(message="an error that is none")),
        returns("error", error=None),
        returns("continuation", error=ToolError(message="what for?")),
    ],
)
def test_a_result_of_any_shape_ends_its_step(cue: Cue) -> None:
    run = a_waiting_run() >> cue
    assert [record.step for record in run.state.completed] == [1]


def test_no_content_of_a_result_takes_the_place_of_its_correlation() -> None:
    run = a_waiting_run() >> returns(output={"run_id": "run_other", "step": 9, "tool": "post", "attempt": 4})
    (record,) = run.state.completed
    assert (record.step, record.tool, record.attempt) == (1, "fetch", 1)
    run >> goes_on()
    assert run.sent("agentic.tool_request")["step"] == 2


def test_an_ok_result_is_told_as_its_result_though_it_names_an_error() -> None:
    run = a_waiting_run() >> returns("ok", output={"summary": "fine"}, error=ToolError(message="an error that is none"))
    assert run.state.last_result is not None
    assert run.state.last_result.output == {"summary": "fine"}
