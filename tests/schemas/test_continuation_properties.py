"""Whatever a tool says, it is a continuation or is refused in words, and what is one can be carried out."""

import contextlib
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.continuation import ContinuationInvalid, of_object, read_plugin_result

LINES = [
    "## Plugin Result", "Status: continuation", "Status: success", "Plugin: p", "Confidence: low", "",
    "## Continuation Request", "Action: multi-step", "Action: retrieve", "Action: plugin", "### Task 1", "### Task 2",
    "Query: q", "Query:", "Input: text", 'Input: {"a": 1}', "Input: {", "Input:", "```", "DependsOn: none",
    "DependsOn: task-1", "DependsOn: task-2", "DependsOn: task-1,", "Reason: because", "prose", "\0", "\r",
]  # fmt: skip
NAMES = st.sampled_from(
    ["action", "query", "tasks", "id", "depends_on", "dependsOn", "plugin", "input", "profile", "x"]
)
WORDS = st.sampled_from(["retrieve", "multi-step", "plugin", "task-1", "a", "none", "again", "", "\0", "\ud800"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)


@given(st.lists(st.sampled_from(LINES), max_size=25))
def test_any_lines_are_read_or_refused_with_a_line_that_is_there(lines: list[str]) -> None:
    try:
        read_plugin_result("\n".join(lines))
    except ValueError as error:
        numbers = [int(flaw.split(":")[0].removeprefix("line ")) for flaw in str(error).split("; ") if "line" in flaw]
        assert numbers
        assert all(1 <= number <= len(lines) + 2 for number in numbers)


@given(JSON | st.fixed_dictionaries({"action": st.just("multi-step"), "tasks": st.lists(JSON, max_size=5)}))
def test_any_json_is_read_or_refused(value: Any) -> None:
    with contextlib.suppress(ContinuationInvalid):
        of_object(value)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Tasks with any dependencies among them: often with cycles."""
    ids = [f"t{number}" for number in range(draw(st.integers(1, 50)))]
    return [
        {
            "id": one,
            "action": "retrieve",
            "query": "q",
            "depends_on": draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)),
        }
        for one in ids
    ]


@given(graphs())
def test_tasks_are_taken_exactly_if_all_can_be_done_and_else_a_cycle_is_named(tasks: list[dict[str, Any]]) -> None:
    needs = {task["id"]: task["depends_on"] for task in tasks}
    done: set[str] = set()
    while ready := [one for one in needs if one not in done and done.issuperset(needs[one])]:
        done.update(ready)
    path = the_cycle(tasks)
    assert (path == []) == (len(done) == len(needs))
    assert path[:1] == path[-1:]
    assert all(after in needs[before] for before, after in pairwise(path))


def the_cycle(tasks: list[dict[str, Any]]) -> list[str]:
    """The path that is told; empty where the tasks are taken."""
    try:
        of_object({"action": "multi-step", "tasks": tasks})
    except ContinuationInvalid as error:
        return str(error).partition("makes a cycle: ")[2].partition(" (")[0].split(" -> ")
    return []
