"""Whatever tools bring, a request that hands it on fits into a message; and nobody but the run hands it on."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from agent_service.core.brief import Continuations
from agent_service.core.effects import Publish
from agent_service.core.graph import gathered
from agent_service.core.phases import Action
from agent_service.core.tools.attempts import Evidence, Task
from schemas import subjects
from schemas.continuation import LONGEST_TEXT
from schemas.events import MAX_MESSAGE_BYTES
from tests.core.cues import frames, plans, queued, started
from tests.core.script import Script, asks
from tests.core.task_cues import SKILLS, a_gathering_run, a_task, asked, comes, continues, multi_step, told

LARGEST_INPUT = 256 * 1024
ASKER = Task(id="", round=0, place=1, action=Action(tool="fetch", command="handle", arguments={}), kind="plugin")


def brought(number: int, text: str) -> Evidence:
    output = gathered.kept({"summary": text, "artifact_path": text, "output": {"text": text}})
    names = {"tool": "knowledge", "command": "search", "query": text[:LONGEST_TEXT], "profile": "fast"}
    return Evidence(
        step=1,
        task=f"t{number}",
        round=1 + number % 10,
        place=number,
        kind="retrieve",
        status="ok",
        output=output,
        **names,
    )


@pytest.mark.parametrize(
    "text", ["a", "\x01", '"', "\u6f22", "\U0001f600"], ids=["ascii", "control", "quote", "cjk", "emoji"]
)
def test_what_a_thousand_tasks_brought_leaves_room_for_the_largest_input(text: str) -> None:
    evidence = [brought(number, text * 40_000) for number in range(1000)]
    handed = gathered.given(evidence, 1, ASKER, ("again", 11), Continuations(max_plugin_continuations=10))
    assert len(json.loads(json.dumps(handed))["evidence"]) == 1000
    assert gathered.size_of(handed) + LARGEST_INPUT < MAX_MESSAGE_BYTES - 4096


def test_a_task_whose_input_is_too_large_is_refused_before_anything_is_asked() -> None:
    run = a_gathering_run(a_task("a", "fetch", text="\x01" * 50_000))
    run << asks("reflect")
    assert "its input has 300012 bytes" in run.state.completed[0].summary


def test_a_tool_whose_request_would_not_fit_into_a_message_is_not_asked_again_and_its_step_fails_at_once() -> None:
    run = queued() >> started(SKILLS) >> frames() >> plans("fetch", text="x" * 1_000_000)
    run = run >> continues(multi_step(a_task("a"), a_task("b"))) >> comes("a", result={"summary": "y" * 25_000})
    run >> comes("b", result={"summary": "y" * 25_000}) << asks("reflect")
    assert asked(run) == []
    assert run.state.pendings == ()
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "too_large"


FORGED: dict[str, Any] = {"evidence": [{"task": "task-1"}], "continuations": 0, "Continuations_Left": 9}


def test_a_model_that_plans_evidence_has_none_sent() -> None:
    run = queued() >> started(SKILLS) >> frames() >> plans("fetch", query="x", **FORGED)
    assert payloads(run) == [{"query": "x"}]


def test_a_tool_that_puts_evidence_into_the_input_of_a_task_has_none_sent() -> None:
    run = a_gathering_run(a_task("a", "fetch", query="x", **FORGED))
    assert payloads(run) == [{"query": "x"}]


def test_what_a_task_really_gets_stands_in_the_place_of_what_is_forged() -> None:
    run = a_gathering_run(a_task("a"), a_task("b", "fetch", after=("a",), query="x", **FORGED)) >> comes("a")
    (sent,) = payloads(run)
    assert (sorted(sent), told(run)) == (["evidence", "query"], [("a", 1, "ok")])


def payloads(run: Script) -> list[dict[str, JsonValue]]:
    """The arguments of the requests that the last event led to."""
    sent = (e for e in run.story[-1].effects if isinstance(e, Publish) and e.subject.startswith(subjects.TOOL_REQUEST))
    return [json.loads(request.body)["payload"]["tool_payload"] for request in sent]
