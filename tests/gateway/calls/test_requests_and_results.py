"""Reading tool requests, naming artifacts, and making results for the bus."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from ductile_gateway.calls.artifacts import artifact_text, name_candidates
from ductile_gateway.calls.call import Call, ProducedArtifact, ToolOutcome, Unacceptable, read_again, read_request
from ductile_gateway.calls.results import MAX_ARTIFACTS, MAX_RESULT_BYTES, answer_to, fit_for_event
from tests.gateway.parts import ILLEGAL_NAMES, NOON, RUN, TRACE, a_request, asked_for, message_of, result_in

SUBJECT, BODY, HEADERS = message_of(a_request())


def changed(**payload: Any) -> bytes:
    message = json.loads(BODY)
    return json.dumps(message | {"payload": message["payload"] | payload}).encode()


def test_a_request_has_the_key_of_its_attempt_the_route_of_its_subject_and_the_trace_of_its_header() -> None:
    asked = read_request(SUBJECT, BODY, HEADERS)
    assert (asked.key, asked.route, asked.trace.trace_id) == (f"{RUN}:1:fetch:1", "jina-reader", TRACE)
    assert read_again(asked.route, asked.body, trace=asked.trace) == asked


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_a_request_or_a_route_of_such_a_name_is_never_taken(name: str) -> None:
    for field in ("tool", "tool_command"):
        with pytest.raises(Unacceptable, match=field) as refusal:
            read_request(SUBJECT, changed(**{field: name}), HEADERS)
        assert len(str(refusal.value)) < 1500
    for subject in (f"agentic.tool_request.{name}", "agentic.tool_request", "agentic.x.y"):
        with pytest.raises(Unacceptable, match="subject"):
            read_request(subject, BODY, HEADERS)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "body"),
        (b"\xff\xfe", "body"),
        (b"[1]", "body"),
        (b"[" * 5000, "body"),
        (b'{"type": "agentic.tool_request.jina-reader"}', "payload"),
        (changed(run_id="../other"), "run_id"),
        (changed(step=0), "step"),
        (changed(step="1"), "step"),
        (changed(attempt=True), "attempt"),
        (changed(tool_payload=[1]), "tool_payload"),
        (BODY.replace(b'"http://example.org"', b"NaN"), "tool_payload"),
        (BODY.replace(b'"http://example.org"', b'"\\ud800"'), "body"),
        (changed(requested_at="yesterday"), "requested_at"),
        # Half of a sub-request.
        (changed(task="task-1"), ""),
        (changed(round=2), ""),
        # More than a message may have.
        (changed(tool_payload={"text": "x" * 2**20}), "a message of"),
        (changed(tool_payload={str(number): 0 for number in range(10**5)}), "a message of"),
        (BODY.replace(b'"http://example.org"', b'{"a":' * 500 + b"0" + b"}" * 500), "nested too deeply"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_breaks_the_contract_or_is_too_large_or_deep_is_never_taken(body: bytes, why: str) -> None:
    with pytest.raises(Unacceptable) as refusal:
        read_request(SUBJECT, body, HEADERS)
    assert why in str(refusal.value)
    assert len(str(refusal.value)) < 1500


def names(name: str, content_type: str = "text/plain", *, step: int = 1, attempt: int = 1, place: int = 0) -> list[str]:
    asked = asked_for(a_request(step=step, attempt=attempt))
    return list(name_candidates(ProducedArtifact(name, content_type, b""), asked, place=place))


@pytest.mark.parametrize(
    ("name", "content_type", "becomes"),
    [
        ("page.html", "text/html", "fetch-01.html"),
        ("output.json", "application/json", "fetch-01.json"),
        ("jina-reader.txt", "text/plain", "fetch-01.txt"),
        ("page", "text/html; charset=utf-8", "fetch-01.html"),
        ("__", "text/html", "fetch-01.html"),
        ("critique.md", "text/markdown", "critique.md"),
        ("_notes.txt", "text/plain", "notes.txt"),
        ("x" * 100, "text/plain", "x" * 48 + ".txt"),
    ],
)
def test_a_name_that_says_nothing_becomes_tool_and_step_and_any_other_is_kept(
    name: str, content_type: str, becomes: str
) -> None:
    assert names(name, content_type)[0] == becomes


def test_a_name_that_is_taken_gets_the_step_or_the_attempt_and_at_last_one_that_nobody_has() -> None:
    assert names("critique.md", step=12, attempt=3)[:2] == ["critique.md", "critique-12.md"]
    assert names("page.html", step=12, attempt=3)[:2] == ["fetch-12.html", "fetch-12-3.html"]
    last = {names("page.html", step=s, attempt=a, place=p)[-1] for s in (1, 2) for a in (1, 2) for p in (0, 1)}
    assert len(last) == 8


@pytest.mark.parametrize(
    ("content_type", "content", "text"),
    [
        ("text/html", "é".encode(), "é"),
        ("text/plain; charset=latin-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("text/plain; charset=UTF-7", b"+AGE-", "+AGE-"),
        ("application/ld+json", b"{}", "{}"),
        ("text/plain", b"\xff\0a", "\ufffd\ufffda"),
        ("image/png", b"abc", None),
    ],
)
def test_text_is_read_as_what_it_says_it_is_and_nothing_else_is_text(
    content_type: str, content: bytes, text: str | None
) -> None:
    assert artifact_text(ProducedArtifact("a", content_type, content)) == text


PAGE = ProducedArtifact("page.html", "text/html", b"<h1>Example</h1>")
FETCHED = replace(PAGE, name="fetch-01.html")
LOGO = ProducedArtifact("logo.png", "image/png", b"\x89PNG")
WORDS = "word " * 4000
LINKS: dict[str, JsonValue] = {"links": ["x" * 50] * 100}


def answered(outcome: ToolOutcome) -> Call:
    return answer_to(asked_for(), outcome, at=NOON)


def output(outcome: ToolOutcome, *kept: ProducedArtifact) -> dict[str, Any]:
    result = result_in(answered(replace(outcome, artifacts=kept)).body).result
    assert result is not None
    return result.model_dump(exclude_none=True)


def test_an_artifact_is_named_by_path_type_size_and_hash_with_an_excerpt() -> None:
    about = {"path": "artifacts/fetch-01.html", "content_type": "text/html", "size": 16}
    assert output(ToolOutcome("ok", text="Fetched it"), FETCHED) == {
        "summary": "Fetched it",
        "artifact_path": "artifacts/fetch-01.html",
        "content_type": "text/html",
        "excerpt": "<h1>Example</h1>",
        "artifacts": [about | {"sha256": hashlib.sha256(PAGE.content).hexdigest()}],
    }


def test_the_excerpt_repeats_nothing_that_the_summary_shows() -> None:
    fit = fit_for_event(ToolOutcome("ok", text=WORDS, output=LINKS))
    text, large = fit.artifacts
    told = output(fit, text, large)
    cut = "the whole is the artifact artifacts/output.{}, which goes on at line {}, character {}]"
    assert told["summary"].endswith(cut.format("txt", 1, 8193))
    assert told["artifact_path"] == "artifacts/output.json"
    assert told["excerpt"].startswith('{\n"links": [\n"xxx')
    assert cut.format("json", 76, 11) in told["excerpt"]
    told = output(fit, LOGO, text)
    assert "excerpt" not in told
    assert (told["artifact_path"], told["content_type"]) == ("artifacts/output.txt", "text/plain")


def test_large_text_and_large_output_become_artifacts_with_a_line_for_each_value() -> None:
    rows: dict[str, JsonValue] = {"rows": [{"n": n, "deep": [[["é"]]]} for n in range(200)]}
    small = fit_for_event(ToolOutcome("ok", text=WORDS, output=rows, artifacts=(PAGE,)))
    assert [artifact.name for artifact in small.artifacts] == ["page.html", "output.txt", "output.json"]
    _, text, large = (artifact.content for artifact in small.artifacts)
    assert (text.decode(), json.loads(large), small.output) == (WORDS, rows, {})
    assert max(map(len, large.splitlines())) < 20


def test_a_result_with_much_to_tell_stays_short_and_the_largest_fits_into_a_message_of_the_bus() -> None:
    fit = fit_for_event(ToolOutcome("ok", text="word " * 50_000, output={"numbers": list(range(50_000))}))
    assert len(answered(fit).body) < 18 * 1024
    many = tuple(ProducedArtifact(f"{n:03d}{'n' * 90}", "text/plain", b"\1" * 3000) for n in range(MAX_ARTIFACTS - 1))
    most = fit_for_event(ToolOutcome("ok", text="\1" * 12_288, output={"a": "\1" * 680}, artifacts=many))
    assert most.output
    assert len(answered(most).body) < MAX_RESULT_BYTES - 4096


def test_a_tool_that_floods_the_run_with_artifacts_has_failed() -> None:
    small = fit_for_event(ToolOutcome("ok", artifacts=(PAGE,) * (MAX_ARTIFACTS + 1)))
    assert (small.status, small.error_class, small.retryable) == ("error", "bad_output", False)
