"""Continuations in both forms: parsed, or refused with a text.

`continuations/valid` has each example in markdown and in JSON; `continuations/malformed` has what is refused.
"""

import contextlib
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.continuation import (
    Continuation,
    ContinuationInvalid,
    MultiStep,
    PluginResult,
    PluginTask,
    Retrieve,
    RetrieveTask,
    parse_continuation,
    read_continuation,
    read_plugin_result,
)
from schemas.events import ToolOutput
from schemas.markdown_form import is_form
from tests.kit.pages import ROOT, blocks
from tests.schemas import samples

RETRIEVE = {"action": "retrieve", "query": "Alternative values for X", "profile": "fast", "reason": "UNSAT"}


def retrieval(**fields: Any) -> dict[str, Any]:
    return {"action": "retrieve", "query": "values of X"} | fields


def steps(*tasks: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "multi-step", "tasks": list(tasks)} | fields


def tasks_of(value: object) -> tuple[RetrieveTask | PluginTask, ...]:
    found = parse_continuation(value)
    assert isinstance(found, MultiStep)
    return found.tasks


def flaws_of(value: object) -> str:
    with pytest.raises(ContinuationInvalid) as refusal:
        parse_continuation(value)
    return str(refusal.value)


def test_a_retrieval_and_tasks_are_read_each_named_by_its_place_where_it_has_no_id() -> None:
    assert parse_continuation(RETRIEVE) == Retrieve.model_validate(RETRIEVE)
    tasks = tasks_of(steps(retrieval(), retrieval(id="facts"), retrieval()))
    assert [task.id for task in tasks] == ["task-1", "facts", "task-3"]
    for said in ("combine both", {"left": 1}):
        (task,) = tasks_of(steps({"action": "plugin", "plugin": "z3-solver", "input": said}))
        assert isinstance(task, PluginTask)
        assert task.input == said


def test_what_is_written_is_read_again_as_the_same() -> None:
    asked = parse_continuation(
        steps(retrieval(), {"action": "plugin", "plugin": "p", "input": {}, "depends_on": ["task-1"]})
    )
    assert parse_continuation(asked.model_dump(mode="json")) == asked
    assert parse_continuation(asked.model_dump(mode="json", exclude_none=True)) == asked


def test_every_flaw_is_told_of_very_many_the_first_and_nothing_of_a_wrong_value() -> None:
    told = flaws_of(steps(retrieval(query=" ", depends_on=["again"]), 3, retrieval(colour="red")))
    places = [flaw.split()[0] for flaw in told.split("; ")]
    assert places == ["tasks.0.query", "tasks.0.depends_on.0", "tasks.1", "tasks.2.colour"]
    given = {"action": "plugin", "plugin": "p", "input": {"a": "\0"}}
    assert flaws_of(steps(given)) == "tasks.0.input must not contain a NUL character"
    assert len(flaws_of(steps(retrieval(**{"c" * 5000: 1})))) < 300
    assert flaws_of(steps(*[3] * 50)).endswith("; and 38 more")
    secrets = steps(retrieval(action="secret"), retrieval(profile="a secret", depends_on="secret"))
    assert "secret" not in flaws_of(secrets)


MARKDOWN = """## Plugin Result
Status: continuation
Plugin: z3-solver
Confidence: low

## Continuation Request
Action: retrieve
Query: Alternative values for X
"""


def test_the_markdown_form_is_read_from_a_text_of_the_result() -> None:
    expected = Retrieve(action="retrieve", query="Alternative values for X", confidence="low")
    for field in ("summary", "markdown", "excerpt"):
        assert read_continuation(ToolOutput.model_validate({field: MARKDOWN})) == expected


NONE: list[tuple[dict[str, Any] | None, str]] = [
    (None, "neither"),
    ({}, "neither"),
    ({"summary": "I need more"}, "neither"),
    ({"excerpt": MARKDOWN, "artifact_path": "artifacts/output.txt"}, "neither"),
    ({"continuation": MARKDOWN}, "must be an object"),
    ({"summary": MARKDOWN.replace("continuation", "success")}, "line 6: a continuation request does not go with"),
    ({"summary": "## Plugin Result\nStatus: success\nPlugin: z3-solver"}, "asks for nothing"),
    ({"summary": MARKDOWN.replace("Query", "Quest")}, "line 8: Quest is not one of the fields"),
    ({"summary": f'{MARKDOWN}### Task 1\nInput: {{"a": {"9" * 5000}}}'}, "none: a number is too long"),
]


def test_a_result_without_a_continuation_is_refused() -> None:
    for result, flaw in NONE:
        with pytest.raises(ContinuationInvalid, match=flaw):
            read_continuation(None if result is None else ToolOutput.model_validate(result))


HEAD = "## Plugin Result\nStatus: {}\nPlugin: z3-solver\n"


def test_what_follows_the_fields_is_the_text_whatever_it_looks_like() -> None:
    text = "x = 4\n\n## Continuation Request\nAction: retrieve\nQuery: of somebody who is quoted"
    for status in ("success", "error"):
        found = read_plugin_result(f"{HEAD.format(status)}Confidence: high\n\n{text}\n")
        assert found == PluginResult(status=status, plugin="z3-solver", confidence="high", continuation=None, text=text)


def test_a_text_is_of_this_form_by_its_first_line_which_is_told_at_once() -> None:
    for text in (HEAD, "\n \n" + HEAD, HEAD.replace("\n", "\r\n"), "## Plugin Result", HEAD + "\0"):
        assert is_form(text)
    assert not is_form("\n \t" * 300_000 + "x")


FOLDER = Path(__file__).with_name("continuations")
VALID = sorted((FOLDER / "valid").glob("*.md"))
MALFORMED = sorted(path for path in (FOLDER / "malformed").iterdir() if path.suffix in (".md", ".json"))
FLAWS: dict[str, str] = yaml.safe_load((FOLDER / "malformed" / "flaws.yaml").read_text())
"""By the file with one mistake (or several, where its name says so): what its author is told."""


def read_file(path: Path) -> Continuation | None:
    text = path.read_bytes().decode()
    return parse_continuation(json.loads(text)) if path.suffix == ".json" else read_plugin_result(text).continuation


def test_both_forms_of_an_example_ask_for_the_same_by_the_published_schema() -> None:
    for path in VALID:
        asked = read_file(path)
        assert asked is not None
        assert asked == read_file(path.with_suffix(".json"))
        result = {"continuation": json.loads(path.with_suffix(".json").read_bytes())}
        message = samples.changed("agentic.tool_result", status="continuation", result=result)
        samples.published("agentic.tool_result").validate(json.loads(message))
    text = {block.language: block.text for block in blocks(ROOT / "docs" / "CONTINUATIONS.md") if not block.is_file}
    assert read_plugin_result(text["markdown"]).continuation == parse_continuation(json.loads(text["json"]))


def test_of_a_malformed_example_the_field_or_the_line_is_named() -> None:
    told = {}
    for path in MALFORMED:
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole text is compared
            read_file(path)
        told[path.name] = str(refusal.value)
    assert told == FLAWS


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
def test_any_lines_are_read_or_refused_with_a_line_that_is_there_or_a_field(lines: list[str]) -> None:
    try:
        read_plugin_result("\n".join(lines))
    except ValueError as error:
        place, _, number = str(error).partition(":")[0].partition(" ")
        assert place != "line" or 1 <= int(number) <= len(lines) + 2


@given(JSON | st.fixed_dictionaries({"action": st.just("multi-step"), "tasks": st.lists(JSON, max_size=5)}))
def test_any_json_is_read_or_refused(value: Any) -> None:
    with contextlib.suppress(ContinuationInvalid):
        parse_continuation(value)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Tasks with any dependencies, often with cycles."""
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
    """The cycle in the error; empty if the tasks are accepted."""
    try:
        parse_continuation({"action": "multi-step", "tasks": tasks})
    except ContinuationInvalid as error:
        return str(error).partition("makes a cycle: ")[2].partition(" (")[0].split(" -> ")
    return []


def test_a_long_form_is_read_once_and_few_of_its_flaws_are_kept() -> None:
    strangers = {"action": "retrieve", "query": "q", "depends_on": [f"x{number}" for number in range(2000)]}
    with pytest.raises(ContinuationInvalid, match="; and 988 more"):
        parse_continuation({"action": "multi-step", "tasks": [strangers] * 2})
    task = "### Task {}\nAction: retrieve\nQuery:\n```\nq\n```\n"
    begins = "## Plugin Result\nStatus: continuation\nPlugin: x\n\n## Continuation Request\nAction: multi-step\n\n"
    form = begins + "".join(map(task.format, range(1, 20_000)))
    before = time.process_time()
    with pytest.raises(ContinuationInvalid, match="must have at most 1000, and has 19999"):
        read_continuation(ToolOutput.model_validate({"summary": form}))
    assert time.process_time() - before < 5
