"""From an outcome to the message on the bus: small, complete, and the same however often it is made."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from ductile_gateway.calls.call import Answer, JobFacts, ProducedArtifact, ToolOutcome, failed
from ductile_gateway.calls.results import MAX_ARTIFACTS, MAX_RESULT_BYTES, Kept, answer_to, headers_of, made_fit
from schemas import keys
from schemas.events import Envelope, ToolError, ToolResult
from tests.gateway.parts import NOON, RUN, TRACE, a_request, asked_for, result_in

PAGE = ProducedArtifact("page.html", "text/html", b"<h1>Example</h1>")
PICTURE = ProducedArtifact("logo.png", "image/png", b"\x89PNG")
FETCHED, LOGO = Kept("fetch-01.html", PAGE), Kept("logo.png", PICTURE)
WORDS = "word " * 4000
LINKS: dict[str, JsonValue] = {"links": ["x" * 50] * 100}


def answered(outcome: ToolOutcome, *kept: Kept) -> Answer:
    return answer_to(asked_for(), outcome, kept, at=NOON)


def output(outcome: ToolOutcome, *kept: Kept) -> dict[str, Any]:
    result = result_in(answered(outcome, *kept).body).result
    assert result is not None
    return result.model_dump(exclude_none=True)


def error(outcome: ToolOutcome) -> ToolError:
    result = result_in(answered(outcome).body)
    assert (result.status, result.result) == ("error", None)
    assert result.error is not None
    return result.error


def kept_of(outcome: ToolOutcome) -> list[Kept]:
    """The artifacts of an outcome under their own names."""
    return [Kept(artifact.name, artifact) for artifact in outcome.artifacts]


def test_a_result_names_its_run_step_tool_and_attempt_and_carries_the_key_of_the_result() -> None:
    asked = asked_for(a_request(step=3, attempt=2))
    envelope = Envelope[ToolResult].model_validate_json(answer_to(asked, ToolOutcome("ok"), (), at=NOON).body)
    result = envelope.payload
    assert (result.run_id, result.step, result.tool, result.attempt) == (RUN, 3, "fetch", 2)
    assert (envelope.dedupe_key, result.completed_at) == (keys.result(RUN, 3, 2), NOON)


def test_text_and_output_of_a_tool_are_told_apart() -> None:
    told = output(ToolOutcome("ok", text="Fetched it", output={"summary": "mine", "status": 200}))
    assert told == {"summary": "Fetched it", "output": {"summary": "mine", "status": 200}}


@pytest.mark.parametrize("more", [{}, LINKS])
def test_what_a_tool_marks_as_strangers_words_is_told_so_however_large_it_is(more: dict[str, JsonValue]) -> None:
    outcome = made_fit(ToolOutcome("ok", text="found", output={"untrusted": True, **more}))
    result = result_in(answered(outcome, *kept_of(outcome)).body)
    assert result.untrusted
    assert not result_in(answered(ToolOutcome("ok", text="found", output={"untrusted": "no"})).body).untrusted


def test_an_artifact_is_named_by_path_type_size_and_hash_with_an_excerpt() -> None:
    about = {"path": "artifacts/fetch-01.html", "content_type": "text/html", "size": 16}
    assert output(ToolOutcome("ok", text="Fetched it"), FETCHED) == {
        "summary": "Fetched it",
        "artifact_path": "artifacts/fetch-01.html",
        "content_type": "text/html",
        "excerpt": "<h1>Example</h1>",
        "artifacts": [about | {"sha256": hashlib.sha256(PAGE.content).hexdigest()}],
    }


def test_the_excerpt_is_of_the_first_artifact_that_can_be_read_if_there_is_one() -> None:
    told = output(ToolOutcome("ok"), LOGO, FETCHED)
    assert (told["artifact_path"], told["excerpt"]) == ("artifacts/fetch-01.html", "<h1>Example</h1>")
    assert [one["path"] for one in told["artifacts"]] == ["artifacts/logo.png", "artifacts/fetch-01.html"]
    told = output(ToolOutcome("ok"), LOGO)
    assert (told["artifact_path"], "excerpt" in told) == ("artifacts/logo.png", False)


def test_the_excerpt_is_of_what_the_tool_made_itself_before_it_is_of_its_large_output() -> None:
    fit = made_fit(ToolOutcome("ok", text="Fetched it", output=LINKS, artifacts=(PAGE,)))
    assert [artifact.name for artifact in fit.artifacts] == ["page.html", "output.json"]
    told = output(fit, *kept_of(fit))
    assert (told["artifact_path"], told["excerpt"]) == ("artifacts/page.html", "<h1>Example</h1>")


def test_the_excerpt_repeats_nothing_that_the_summary_shows() -> None:
    fit = made_fit(ToolOutcome("ok", text=WORDS, output=LINKS))
    text, large = kept_of(fit)
    told = output(fit, text, large)
    assert told["summary"].endswith(
        "the whole is the artifact artifacts/output.txt, which goes on at line 1, character 8193]"
    )
    assert told["artifact_path"] == "artifacts/output.json"
    assert told["excerpt"].startswith('{\n"links": [\n"xxx')
    assert "the whole is the artifact artifacts/output.json, which goes on at line 76, character 11]" in told["excerpt"]
    told = output(fit, LOGO, text)
    assert "excerpt" not in told
    assert (told["artifact_path"], told["content_type"]) == ("artifacts/output.txt", "text/plain")


def test_a_long_text_is_cut_between_two_characters_and_says_how_much_is_left_out_and_where_it_is() -> None:
    text = "a" + "é" * 8000
    told = output(ToolOutcome("ok"), Kept("fetch-01.txt", ProducedArtifact("page", "text/plain", text.encode())))
    head, _, note = told["excerpt"].partition("\n")
    assert text.startswith(head)
    assert len(head.encode()) == 8191
    assert note == (
        "[cut: 4096 of 8001 characters are shown; "
        "the whole is the artifact artifacts/fetch-01.txt, which goes on at line 1, character 4097]"
    )


@pytest.mark.parametrize(("said", "shown"), [(100, 8192), (6000, 6288), (12_000, 1024)])
def test_the_excerpt_takes_what_room_the_summary_leaves_and_a_little_in_any_case(said: int, shown: int) -> None:
    page = Kept("fetch-01.txt", ProducedArtifact("page", "text/plain", b"x" * 20_000))
    told = output(ToolOutcome("ok", text="y" * said), page)
    assert len(told["excerpt"].partition("\n")[0]) == shown


def test_characters_that_cannot_be_stored_never_reach_the_bus() -> None:
    page = Kept("a.txt", ProducedArtifact("a.txt", "text/plain", b"a\0b"))
    bad = "x\0\ud800y"
    told = output(made_fit(ToolOutcome("ok", text=bad, output={bad: [{"deep": bad}, 1.5, None]})), page)
    assert told["output"] == {"x\ufffd?y": [{"deep": "x\ufffd?y"}, 1.5, None]}
    assert (told["summary"], told["excerpt"]) == ("x\ufffd?y", "a\ufffdb")
    assert error(failed("tool_error", "x\0y", retryable=False)).message == "x\ufffdy"


def test_an_error_is_told_with_its_class_its_job_and_whether_another_attempt_can_help() -> None:
    job = JobFacts("job-7", attempts=2, exit_code=78, stderr="SHED_API_KEY is not set")
    told = error(replace(failed("transient", "é" * 100_000, retryable=True), job=job))
    assert (told.error_class, told.retryable, len(told.message.encode()) < 4200) == ("transient", True, True)
    assert (told.job_id, told.attempts, told.exit_code, told.stderr) == ("job-7", 2, 78, "SHED_API_KEY is not set")


@pytest.mark.parametrize(("attempts", "told"), [(1, {}), (3, {"attempts": 3})])
def test_a_result_tells_its_job_and_how_often_it_ran_if_more_than_once(attempts: int, told: dict[str, int]) -> None:
    done = ToolOutcome("ok", text="done", job=JobFacts("job-7", attempts=attempts))
    assert output(done) == {"summary": "done", "job_id": "job-7"} | told


def test_large_text_and_large_output_become_artifacts_with_a_line_for_each_value() -> None:
    rows: dict[str, JsonValue] = {"rows": [{"n": n, "deep": [[["é"]]]} for n in range(200)]}
    small = made_fit(ToolOutcome("ok", text=WORDS, output=rows, artifacts=(PAGE,)))
    assert [artifact.name for artifact in small.artifacts] == ["page.html", "output.txt", "output.json"]
    _, text, large = (artifact.content for artifact in small.artifacts)
    assert (text.decode(), json.loads(large), small.output) == (WORDS, rows, {})
    assert max(map(len, large.splitlines())) < 20


def test_the_size_of_a_large_output_does_not_multiply_with_its_depth() -> None:
    deep: JsonValue = list(range(5000))
    for _ in range(150):
        deep = [deep]
    (large,) = made_fit(ToolOutcome("ok", text="done", output={"deep": deep})).artifacts
    assert len(large.content) < 2 * len(json.dumps(deep))


def test_what_is_small_stays_as_it_is_and_one_byte_more_is_large() -> None:
    outcome = ToolOutcome("ok", text="x" * 12_288, output={"a": "x" * 4088}, artifacts=(PAGE,))
    assert made_fit(outcome) == outcome
    larger = made_fit(replace(outcome, text="x" * 12_289, output={"a": "x" * 4089}))
    assert [artifact.name for artifact in larger.artifacts] == ["page.html", "output.txt", "output.json"]
    refusal = failed("not_found", "no such page", retryable=False)
    assert made_fit(refusal) == refusal


def test_a_result_with_much_to_tell_stays_short_and_the_largest_fits_into_a_message_of_the_bus() -> None:
    fit = made_fit(ToolOutcome("ok", text="word " * 50_000, output={"numbers": list(range(50_000))}))
    assert len(answered(fit, *kept_of(fit)).body) < 18 * 1024
    many = tuple(ProducedArtifact(f"{n:03d}{'n' * 90}", "text/plain", b"\1" * 3000) for n in range(MAX_ARTIFACTS - 1))
    most = made_fit(ToolOutcome("ok", text="\1" * 12_288, output={"a": "\1" * 680}, artifacts=many))
    assert most.output
    assert len(answered(most, *kept_of(most)).body) < MAX_RESULT_BYTES - 4096


def test_a_tool_that_floods_the_run_with_artifacts_has_failed() -> None:
    small = made_fit(ToolOutcome("ok", artifacts=(PAGE,) * (MAX_ARTIFACTS + 1)))
    assert (small.status, small.error_class, small.retryable) == ("error", "bad_output", False)


def test_the_headers_carry_the_trace_of_the_request_and_the_time_of_the_result() -> None:
    headers = headers_of(answered(ToolOutcome("ok")), "key")
    assert headers["traceparent"].startswith(f"00-{TRACE}-")
    assert (headers["Agentic-Run-Id"], headers["ce-time"]) == (RUN, "2026-11-21T12:00:00Z")
    assert headers == headers_of(answered(ToolOutcome("ok")), "key")


@pytest.mark.parametrize("kept", [FETCHED, LOGO])
def test_the_same_outcome_makes_the_same_message(kept: Kept) -> None:
    assert answered(ToolOutcome("ok", text="a"), kept) == answered(ToolOutcome("ok", text="a"), kept)
