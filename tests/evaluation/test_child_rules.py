"""A broken rule about runs that a run started is found: each case went well, with one thing changed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.core.phases import Phase
from agent_service.core.replacing import replace as replaced
from agent_service.core.state import RunState
from agent_service.core.waiting import Asking, ForModel, ForPerson, Queued, Stop
from agent_service.workbench.evaluation.child_rules import RULES
from agent_service.workbench.evaluation.observed import Observed
from agent_service.workbench.evaluation.scenario import own_folder, scenarios
from agent_service.workbench.evaluation.violations import broken_rules
from tests.evaluation.small import Change, seen_of, unfound


@pytest.fixture
async def seen(tmp_path: Path) -> Observed:
    (scenario,) = scenarios([own_folder()], ["agents-share-a-budget"])
    return await seen_of(scenario, tmp_path)


def test_a_family_that_went_well_breaks_no_rule(seen: Observed) -> None:
    assert [line for run in seen.tree for line in broken_rules(run)] == []
    assert [child.state.status for child in seen.children if child.state] == ["done", "escalated"]


def child(change: Callable[[RunState], RunState]) -> Change:
    """The first child is otherwise."""

    def changed(seen: Observed) -> Observed:
        first, *others = seen.children
        assert first.state is not None
        return replace(seen, children=(replace(first, state=change(first.state)), *others))

    return changed


def deeper(state: RunState) -> RunState:
    return replaced(state, brief=replaced(state.brief, depth=2))


def later(state: RunState) -> RunState:
    limits = state.brief.limits
    until = limits.deadline_at + timedelta(seconds=1)
    return replaced(state, brief=replaced(state.brief, limits=replaced(limits, deadline_at=until)))


def richer(state: RunState) -> RunState:
    return replaced(state, brief=replaced(state.brief, limits=replaced(state.brief.limits, max_steps=10)))


def abler(state: RunState) -> RunState:
    more = state.brief.skills[0].model_copy(update={"name": "saw"})
    return replaced(state, brief=replaced(state.brief, skills=(*state.brief.skills, more)))


def busier(state: RunState) -> RunState:
    return replaced(state, step=7)


def left_alone(state: RunState) -> RunState:
    return replaced(state, waiting=Queued())


def begging(state: RunState) -> RunState:
    stop = Stop(ending_class="budget_steps", reason="all steps are used", entry=state.version)
    held = ForModel(asking=Asking(call=1, phase=Phase.REFLECT))
    return replaced(state, waiting=ForPerson(held=held, stop=stop, since=state.updated_at))


def tainted(state: RunState) -> RunState:
    return replaced(state, strangers="step 1 (fetch)")


CASES: dict[str, Sequence[Change]] = {
    "a_child_has_no_more_than_its_parent": [child(deeper), child(later), child(richer), child(abler)],
    "all_that_a_run_has_is_shared": [child(busier)],
    "nobody_works_for_a_run_that_ended": [child(left_alone), child(begging)],
    "strangers_of_a_child_are_its_parents": [child(tainted)],
}


def test_every_rule_on_children_has_a_case() -> None:
    assert CASES.keys() == {rule.__name__.strip("_") for rule in RULES}


def test_every_broken_rule_on_children_is_found(seen: Observed) -> None:
    assert unfound(CASES, seen) == []
