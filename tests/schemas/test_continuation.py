"""What a tool may ask for before it answers, in both forms."""

from typing import Any

import pytest

from schemas.continuation import ContinuationInvalid, MultiStep, PluginTask, Retrieve, RetrieveTask, of_object, read
from schemas.events import ToolOutput

RETRIEVE = {"action": "retrieve", "query": "Alternative values for X", "profile": "fast", "reason": "UNSAT"}


def retrieval(**fields: Any) -> dict[str, Any]:
    return {"action": "retrieve", "query": "values of X"} | fields


def steps(*tasks: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "multi-step", "tasks": list(tasks)} | fields


def tasks_of(value: object) -> tuple[RetrieveTask | PluginTask, ...]:
    found = of_object(value)
    assert isinstance(found, MultiStep)
    return found.tasks


def flaws_of(value: object) -> str:
    with pytest.raises(ContinuationInvalid) as refusal:
        of_object(value)
    return str(refusal.value)


def test_a_retrieval_is_read() -> None:
    assert of_object(RETRIEVE) == Retrieve.model_validate(RETRIEVE)


def test_a_task_without_an_id_is_named_by_its_place() -> None:
    tasks = tasks_of(steps(retrieval(), retrieval(id="facts"), retrieval()))
    assert [task.id for task in tasks] == ["task-1", "facts", "task-3"]


@pytest.mark.parametrize("given", ["combine both", {"left": 1}])
def test_the_input_of_a_plugin_is_a_text_or_its_arguments(given: object) -> None:
    (task,) = tasks_of(steps({"action": "plugin", "plugin": "z3-solver", "input": given}))
    assert isinstance(task, PluginTask)
    assert task.input == given


def test_what_is_written_is_read_again_as_the_same() -> None:
    asked = of_object(steps(retrieval(), {"action": "plugin", "plugin": "p", "input": {}, "depends_on": ["task-1"]}))
    assert of_object(asked.model_dump(mode="json")) == asked
    assert of_object(asked.model_dump(mode="json", exclude_none=True)) == asked


def test_a_cycle_is_named_with_its_path() -> None:
    cycle = steps(retrieval(depends_on=["c"], id="a"), retrieval(depends_on=["a"], id="b"), retrieval(id="c"))
    cycle["tasks"][2]["depends_on"] = ["b"]
    assert flaws_of(cycle) == "tasks.0.depends_on makes a cycle: a -> c -> b -> a (each waits for the next)"


def test_every_flaw_is_told() -> None:
    told = flaws_of(steps(retrieval(query=" ", depends_on=["again"]), 3, retrieval(colour="red")))
    places = [flaw.split()[0] for flaw in told.split("; ")]
    assert places == ["tasks.0.query", "tasks.0.depends_on.0", "tasks.1", "tasks.2.colour"]


def test_of_very_many_flaws_the_first_are_told_and_how_many_there_are() -> None:
    assert flaws_of(steps(*[3] * 50)).endswith("; and 38 more")


def test_nothing_of_a_wrong_value_is_repeated() -> None:
    assert "secret" not in flaws_of(
        steps(retrieval(action="secret"), retrieval(profile="a secret", depends_on="secret"))
    )


MARKDOWN = """## Plugin Result
Status: continuation
Plugin: z3-solver
Confidence: low

## Continuation Request
Action: retrieve
Query: Alternative values for X
"""


@pytest.mark.parametrize("field", ["summary", "markdown", "excerpt"])
def test_the_markdown_form_is_read_from_a_text_of_the_result(field: str) -> None:
    expected = Retrieve(action="retrieve", query="Alternative values for X", confidence="low")
    assert read(ToolOutput.model_validate({field: MARKDOWN})) == expected


@pytest.mark.parametrize(
    ("result", "flaw"),
    [
        (None, "neither"),
        ({}, "neither"),
        ({"summary": "I need more"}, "neither"),
        ({"excerpt": MARKDOWN, "artifact_path": "artifacts/output.txt"}, "neither"),
        ({"continuation": MARKDOWN}, "must be an object"),
        ({"summary": MARKDOWN.replace("continuation", "success")}, "line 6: a continuation request does not go with"),
        ({"summary": "## Plugin Result\nStatus: success\nPlugin: z3-solver"}, "asks for nothing"),
        ({"summary": MARKDOWN.replace("Query", "Quest")}, "line 8: Quest is not one of the fields"),
    ],
)
def test_a_result_without_a_continuation_is_refused(result: dict[str, Any] | None, flaw: str) -> None:
    with pytest.raises(ContinuationInvalid, match=flaw):
        read(None if result is None else ToolOutput.model_validate(result))
