"""A broken rule about what tools ask for is found: each case is a run that went well, with one thing changed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.played import Said
from agent_service.workbench.evaluation.task_rules import RULES
from agent_service.workbench.evaluation.violations import broken_rules
from tests.evaluation.small import Change, asking_first, reworded, seen_of, unfound


@pytest.fixture
async def seen(tmp_path: Path) -> Observed:
    return await seen_of(asking_first(), tmp_path)


def test_a_tool_that_asked_first_breaks_no_rule(seen: Observed) -> None:
    assert broken_rules(seen) == []
    assert (seen.tasks, seen.rounds) == (3, 1)


def requests(task: str, /, **payload: Any) -> Change:
    """The requests for `task` say this instead."""

    def change(seen: Observed) -> Observed:
        return replace(seen, said=[reworded(one, payload) if _is_of(one, task) else one for one in seen.said])

    return change


def _is_of(said: Said, task: str) -> bool:
    return said.subject.startswith("agentic.tool_request.") and said.payload.get("task") == task


def sent(task: str, earlier: timedelta) -> Change:
    def change(seen: Observed) -> Observed:
        return replace(seen, said=[replace(s, at=s.at - earlier) if _is_of(s, task) else s for s in seen.said])

    return change


def granted(**limits: Any) -> Change:
    """The run was given less than it took."""

    def change(seen: Observed) -> Observed:
        assert seen.state is not None
        of_run = seen.state.brief.limits
        less = replace(of_run, continuations=replace(of_run.continuations, **limits))
        changed = replace(seen, state=replace(seen.state, brief=replace(seen.state.brief, limits=less)))
        changed.__dict__["moments"] = tuple(
            replace(moment, state=replace(moment.state, brief=replace(moment.state.brief, limits=less)))
            for moment in seen.moments
        )
        return changed

    return change


ONE = {"task": "here", "round": 1}
CASES: dict[str, Sequence[Change]] = {
    "tasks_wait_for_what_they_need": [
        requests("here", task="nowhere"),
        requests("here", step=2),
        sent("both", timedelta(seconds=1)),
    ],
    "tools_are_asked_again_once_all_came": [
        requests("again", tool_payload={"state": "on", "evidence": [ONE]}),
        requests("again", tool_payload={"state": "on"}),
        requests(
            "again", tool_payload={"evidence": [{**ONE, "task": task} for task in ("here", "there", "both", "both")]}
        ),
        requests("again", task="both.again"),
    ],
    "what_a_step_may_gather_is_bounded": [
        granted(max_plugin_continuations=0),
        granted(max_plugin_total_time_ms=1),
        granted(parallel=1),
        granted(parallel_per_tool=1),
    ],
}


def test_every_rule_on_tasks_has_a_case() -> None:
    assert CASES.keys() == {rule.__name__.strip("_") for rule in RULES}


def test_every_broken_rule_on_tasks_is_found(seen: Observed) -> None:
    assert unfound(CASES, seen) == []
