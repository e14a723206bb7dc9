"""What holds for any tree of continuations, whatever fails, is late, comes twice or is read back from the store."""

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_service.core.brief import Continuations
from agent_service.core.graph import gathered
from agent_service.core.phases import Action
from agent_service.core.tools import attempts
from agent_service.core.tools.attempts import Evidence
from schemas.continuation import LONGEST_TEXT
from schemas.events import MAX_MESSAGE_BYTES
from tests.core import cues
from tests.core.gathering import (
    CHANCES,
    PATIENT,
    TREES,
    Asked,
    Chances,
    Gathering,
    Part,
    Task,
    a_graph,
    check,
    continuations,
    expected,
    play,
)

FEW = settings(max_examples=40)
"""Of courses that the first tests play too."""


@given(TREES, CHANCES)
def test_each_task_is_asked_once_after_what_it_needs_and_told_of_it(root: Part, chance: Random) -> None:
    gathering = Gathering(root)
    play(gathering, chance)
    check(gathering, root)


@given(TREES, CHANCES)
def test_what_is_lost_or_late_is_asked_for_once_more_and_changes_nothing_else(root: Part, chance: Random) -> None:
    gathering = Gathering(root)
    play(gathering, chance, loses=True)
    check(gathering, root)


@FEW
@given(TREES, CHANCES, st.integers(1, 4), st.integers(1, 3))
def test_no_more_is_under_way_than_a_run_and_a_tool_may_have(
    root: Part, chance: Random, parallel: int, per_tool: int
) -> None:
    width = Continuations(
        max_plugin_continuations=1000,
        max_plugin_total_time_ms=10**10,
        parallel=parallel,
        parallel_per_tool=per_tool,
    )
    gathering = Gathering(root, continuations=width)
    while gathering.goes_on:
        play(gathering, chance, moves=1)
        tools = Counter(asked.payload["tool"] for asked in gathering.executor.open)
        assert tools.total() <= parallel
        assert all(count <= per_tool for count in tools.values())
    check(gathering, root)


@FEW
@given(TREES, CHANCES, st.integers(0, 4))
def test_no_more_continuations_are_taken_than_granted(root: Part, chance: Random, most: int) -> None:
    few = Continuations(max_plugin_continuations=most, max_plugin_total_time_ms=10**10)
    gathering = Gathering(root, continuations=few)
    play(gathering, chance)
    rounds = {asked.payload["round"] for asked in gathering.executor.asked if is_task(asked)}
    assert len(rounds) <= most
    (record,) = gathering.state.completed
    if continuations(root) <= most:
        assert record.status == "ok"
    if len(root.rounds) > most:
        assert record.status == "budget"
    assert gathering.state.evidence == ()


def is_task(asked: Asked) -> bool:
    """Whether it is a task's first question, and not what asks again."""
    task = asked.payload.get("task", "")
    return bool(task) and not task.endswith("again")


@pytest.mark.parametrize("size", [50, 100])
def test_a_chain_of_tasks_is_asked_in_its_order(size: int) -> None:
    tasks = [Task(name=f"t{n}", after=(f"t{n - 1}",) if n else ()) for n in range(size)]
    gathering = Gathering(Part(rounds=(tuple(reversed(tasks)),)))
    play(gathering, Random(1))  # noqa: S311 - it makes courses, no secrets
    names = [asked.payload["task"] for asked in gathering.executor.asked[1:-1]]
    assert names == [task.name for task in tasks]


def test_every_expectation_is_of_a_tree_worth_walking() -> None:
    """The trees have failures, dependents of failures, nested continuations and retries."""
    chance = Random(7)  # noqa: S311 - it makes trees, no secrets
    roots = [Part(rounds=(a_graph(chance, 30, Chances()),)) for _ in range(20)]
    told = [what for root in roots for calls in expected(root).told.values() for _, what in calls]
    assert {"ok", "error", "dependency"} <= set(told)
    assert max(continuations(root) for root in roots) > 3
    assert PATIENT.max_plugin_continuations > 100


# Messages

LARGEST_INPUT = 256 * 1024
NOTHING_ASKED = Action(tool="fetch", command="handle", arguments={})
ASKER = attempts.Task(id="", round=0, place=1, action=NOTHING_ASKED, kind="plugin")


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


def test_what_does_not_fit_into_a_message_is_refused_before_anything_is_asked() -> None:
    asked = cues.multi_step(cues.a_task("a", "fetch", text="\x01" * 50_000))
    run = cues.queued() >> cues.started(cues.SKILLS) >> cues.frames() >> cues.plans() >> cues.continues(asked)
    assert run.outcomes == ("ask reflect",)
    assert "its input has 300012 bytes" in run.state.completed[0].summary
    run = cues.queued() >> cues.started(cues.SKILLS) >> cues.frames() >> cues.plans("fetch", text="x" * 1_000_000)
    run = run >> cues.continues(cues.multi_step(cues.a_task("a"), cues.a_task("b")))
    run = run >> cues.comes("a", result={"summary": "y" * 25_000}) >> cues.comes("b", result={"summary": "y" * 25_000})
    assert (run.outcomes, run.state.pendings) == (("ask reflect",), ())
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "too_large"
