"""How deep a start is: by what it says, by the run that it names, and never less than that."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.limits import LimitRefused
from agent_service.run.child_results import depth_of
from schemas.events import AgenticStart
from tests.core.cues import a_parent, cancel
from tests.shell.world import POLICY, World

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


def test_one_that_names_a_run_which_is_not_under_way_here_is_refused() -> None:
    ended = (a_parent() >> cancel()).state
    for parent in (None, ended):
        with pytest.raises(LimitRefused, match="is no run that is under way here"):
            depth_of(start(parent_run_id="run_1"), parent, deepest=5)


async def test_nobody_takes_the_name_by_which_a_child_is_accepted() -> None:
    world = World(policy=POLICY)
    with pytest.raises(LimitRefused, match="may not begin with child:"):
        await world.intake.wake("child:run_1", start(), known=False, by="somebody")
