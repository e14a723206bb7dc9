"""How deep a start is, what a child brings its parent, and results that say little of what they answer."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.limits import LimitRefused
from agent_service.run.arrival import Arrival, correlation
from agent_service.run.child_results import ChildResults, depth_of
from ductile_gateway.calls.artifacts import named_digest
from schemas import keys, subjects
from schemas.events import AgenticStart
from tests.core.cues import PROOF, a_parent, a_waiting_parent, cancel, child_of, plans, reflects, returns, told_by
from tests.kit.fakes import MemoryArtifacts
from tests.shell.stored import stored

PARENT = replace(a_parent().state, brief=replace(a_parent().state.brief, depth=2))


def start(**fields: Any) -> AgenticStart:
    return AgenticStart(goal="go on", **fields)


@pytest.mark.parametrize(
    ("said", "depth"),
    [
        ({}, 0),
        ({"depth": 1}, 1),
        ({"context": {"agentic_depth": 2}}, 2),
        ({"depth": 1, "context": {"agentic_depth": 2}}, 2),
        ({"context": {"agentic_depth": -1}}, 5),
        ({"context": {"agentic_depth": True}}, 5),
        ({"context": {"agentic_depth": "0"}}, 5),
        ({"parent_run_id": "run_1"}, 3),
        ({"parent_run_id": "run_1", "depth": 0, "context": {"agentic_depth": 0}}, 3),
        ({"parent_run_id": "run_1", "depth": 4}, 4),
    ],
)
def test_a_start_is_as_deep_as_the_deepest_that_is_said_of_it(said: dict[str, Any], depth: int) -> None:
    assert depth_of(start(**said), PARENT if "parent_run_id" in said else None, deepest=5) == depth


@pytest.mark.parametrize("said", [{"depth": 3}, {"parent_run_id": "run_1"}])
def test_one_that_would_be_deeper_than_the_deepest_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(LimitRefused, match="would be 3, and agents may call each other 2 times in a row"):
        depth_of(start(**said), PARENT if "parent_run_id" in said else None, deepest=2)


@pytest.mark.parametrize("parent", [None, (a_parent() >> cancel()).state], ids=["unknown", "ended"])
def test_a_start_that_names_a_run_which_is_not_under_way_is_refused(parent: Any) -> None:
    with pytest.raises(LimitRefused, match="is no run that is under way here"):
        depth_of(start(parent_run_id="run_1"), parent, deepest=5)


async def test_artifacts_of_a_child_are_its_parents_under_names_that_tell_their_content() -> None:
    parent, content = a_waiting_parent(), b"one line"
    told = {"summary": "line", "artifacts": [{"path": "artifacts/line.txt"}, {"path": "artifacts/gone.txt"}]}
    child = child_of(parent) >> plans() >> returns(output=told) >> reflects("done", PROOF)
    artifacts = MemoryArtifacts()
    artifacts.contents[child.state.run_id, "artifacts/line.txt"] = content
    async with stored(parent, child) as store:
        result = await ChildResults(store, artifacts).of(told_by(child))
    digest = hashlib.sha256(content).hexdigest()
    name = f"artifacts/line-relayed-{digest[:16]}.txt"
    assert artifacts.contents[parent.state.run_id, name] == content
    assert named_digest(name.removeprefix("artifacts/")) == digest[:16]
    assert result.result is not None
    (brought,) = result.result.model_dump()["artifacts"]
    assert (brought["path"], brought["sha256"]) == (name, digest)


@pytest.mark.parametrize("odd", [{"task": "A B", "round": "x"}, {"task": "a", "round": 0}, {"status": "so-so"}])
def test_a_result_that_cannot_be_read_relates_to_the_task_that_its_key_names(odd: dict[str, Any]) -> None:
    payload = {"run_id": "r", "step": 1, "tool": "look", "status": "ok", **odd}
    body = {"type": subjects.TOOL_RESULT, "payload": payload, "dedupe_key": keys.result("r", 1, 1, "a", 2)}
    about = correlation(Arrival(subject=subjects.TOOL_RESULT, body=json.dumps(body).encode(), place="7"))
    assert about is not None
    assert (about.task, about.round) == ("a", 2)
