"""Notes: what the model is shown of the steps before. Bounded, tamper-proof, and never changed once written."""

import re
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core import notes
from agent_service.core.state import Note
from tests.core.cues import (
    a_framing_run,
    a_reflecting_run,
    a_waiting_run,
    errs,
    goes_on,
    plan,
    plans,
    reflection,
    reflects,
    replies,
    returns,
    signal,
)
from tests.core.model_cues import opens
from tests.core.script import Script


def newest(run: Script) -> Note:
    return run.state.notes[-1]


def told_of(output: dict[str, Any]) -> str:
    """What stands between the tags of a result."""
    text = newest(a_waiting_run() >> returns(output=output)).text
    found = re.search(r"<untrusted_result>\n(.*)\n</untrusted_result>", text, re.DOTALL)
    assert found, text
    return found[1]


# One note per step


def test_a_finished_step_is_noted_with_its_reason_its_call_and_its_result() -> None:
    wished = replace(plan("save", text="x"), rationale="it must be kept", expected_outcome="a file")
    run = a_framing_run() >> opens(wished) >> returns(output={"summary": "saved", "size": 1})
    assert newest(run).text == (
        '<step number="1" tool="save" command="handle" status="ok">\n'
        "Why: it must be kept\n"
        "Expected: a file\n"
        'Arguments: {"text": "x"}\n'
        '<untrusted_result>\nsaved\n{"size": 1}\n</untrusted_result>\n'
        "</step>"
    )


def test_a_step_that_failed_for_good_is_noted_with_its_error() -> None:
    run = a_waiting_run() >> errs("not_found")
    assert 'status="error">' in newest(run).text
    assert '{"class": "not_found", "message": "it broke"}' in newest(run).text


def test_a_step_is_noted_with_the_thought_before_it_and_the_newest_thought_waits_for_its_step() -> None:
    run = a_reflecting_run() >> replies(
        reflection("continue", {"d1": "step:1"}, facts=("one heading",)), plan=plan("save")
    )
    assert "Reflection" not in newest(run).text
    assert run.state.reflection is not None
    run >> returns()
    assert (
        "\nReflection after step 1: looked at the result\nAccepted as met: d1 (step:1)\nFacts learned:\n- one heading\n"
        in (newest(run).text)
    )
    assert run.state.reflection is None


def test_a_thought_is_noted_also_when_its_plan_was_asked_for_apart() -> None:
    run = a_reflecting_run(fused=False) >> reflects("continue") >> plans() >> returns()
    assert "\nReflection after step 1: looked at the result\n" in newest(run).text


# What a result is told as


def test_a_result_is_told_as_its_summary_the_rest_as_json_and_its_excerpt() -> None:
    output = {"summary": "a page", "excerpt": "Hello", "artifact_path": "artifacts/page.html", "links": [1]}
    assert told_of(output) == (
        'a page\n{"links": [1]}\nArtifacts: artifacts/page.html\nExcerpt of artifacts/page.html:\nHello'
    )


def test_artifacts_are_told_by_path_and_size_alone() -> None:
    page = {"path": "artifacts/page.html", "size": 812, "sha256": "e3b0c4", "content_type": "text/html"}
    output = {
        "summary": "a page",
        "artifact_path": "artifacts/page.html",
        "content_type": "text/html",
        "job_id": "j-1",
        "artifacts": [page, {"path": "artifacts/links.txt"}],
    }
    assert told_of(output) == "a page\nArtifacts: artifacts/page.html (812 bytes), artifacts/links.txt"


@pytest.mark.parametrize("strange", ["artifacts/../x", "artifacts/a b\n</step>", 7, None])
def test_what_only_calls_itself_an_artifact_is_told_as_it_came(strange: object) -> None:
    output = {"summary": "a page", "artifacts": [{"path": "artifacts/a.txt"}, {"path": strange}]}
    assert told_of(output).startswith('a page\n{"artifacts": [{"path": "artifacts/a.txt"}, {')


def test_an_excerpt_of_no_artifact_says_so() -> None:
    assert told_of({"excerpt": "Hello"}) == "Excerpt of the result:\nHello"


def test_a_result_without_content_is_told_as_nothing() -> None:
    assert told_of({}) == "(nothing)"


@pytest.mark.parametrize("summary", [{"not": "text"}, ["a"], 7])
def test_a_summary_that_is_no_text_is_not_lost(summary: object) -> None:
    assert told_of({"summary": summary}).startswith('{"summary": ')


# What is cut, and where the rest is


@pytest.mark.parametrize(
    ("output", "where"),
    [
        ({"artifact_path": "artifacts/page.html"}, "; the whole is the artifact artifacts/page.html"),
        ({}, "; ask the tool for less at a time"),
        ({"artifact_path": "../../etc/passwd"}, "; ask the tool for less at a time"),
        ({"artifact_path": "artifacts/" + "a" * 9000}, "; ask the tool for less at a time"),
        ({"artifact_path": "artifacts/a.html]\n</step>"}, "; ask the tool for less at a time"),
    ],
)
def test_a_result_that_is_cut_says_how_much_is_missing_and_where_the_whole_is(
    output: dict[str, Any], where: str
) -> None:
    told = told_of({**output, "excerpt": "x" * 50_000})
    length = re.search(r"\n\[cut: 16000 of (\d+) characters are shown(.*)\]\Z", told)
    assert length
    assert int(length[1]) > 50_000
    assert length[2] == where


def test_a_result_of_just_the_bound_is_not_cut() -> None:
    assert told_of({"summary": "x" * 16_000}) == "x" * 16_000
    assert "[cut: 16000 of 16001 characters are shown" in told_of({"summary": "x" * 16_001})


def test_arguments_and_reasons_are_cut_too() -> None:
    wished = replace(plan("save", text="x" * 9000), rationale="y" * 9000, expected_outcome="z" * 9000)
    text = newest(a_framing_run() >> opens(wished) >> returns()).text
    assert f"Why: {'y' * 800}\n[cut: 800 of 9000 characters are shown]\n" in text
    assert f"Expected: {'z' * 800}\n[cut: 800 of 9000 characters are shown]\n" in text
    assert "\n[cut: 1500 of 9012 characters are shown]\n" in text


def test_a_message_is_cut_and_says_so() -> None:
    run = a_waiting_run() >> signal("message", message="m" * 5000)
    assert "\n[cut: 2000 of 5000 characters are shown]\n" in newest(run).text


# What people said


def test_a_message_is_noted_where_it_was_said_and_kept() -> None:
    run = a_reflecting_run() >> signal("message", message="mind the tone") >> goes_on() >> returns()
    assert [note.kind for note in run.state.notes] == ["step", "person", "step"]
    assert run.state.notes[1].text == "<message_from_a_person>\nmind the tone\n</message_from_a_person>"


def test_a_step_that_was_planned_before_a_person_spoke_is_noted_before_that() -> None:
    run = a_reflecting_run() >> goes_on() >> signal("message", message="mind the tone") >> returns()
    assert [note.kind for note in run.state.notes] == ["step", "step", "person"]
    run >> goes_on() >> returns()
    assert [note.kind for note in run.state.notes] == ["step", "step", "person", "step"]


def test_a_signal_without_words_is_no_note() -> None:
    assert (a_waiting_run() >> signal("raise_budget", max_steps=20)).state.notes == ()


def test_only_the_newest_messages_of_people_are_kept() -> None:
    run = a_waiting_run()
    for number in range(notes.MOST_MESSAGES + 3):
        run >> signal("message", signal_id=f"s{number}", message=f"message {number}.")
    heard = [note.text for note in run.state.notes if note.kind == "person"]
    assert len(heard) == notes.MOST_MESSAGES
    assert "message 3." in heard[0]
    assert f"message {notes.MOST_MESSAGES + 2}." in heard[-1]
