"""Reading tool requests, admitting them, naming artifacts, making results for the bus, and what is told of calls."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from ductile_gateway.calls.admission import PauseGate
from ductile_gateway.calls.artifacts import artifact_text, name_candidates
from ductile_gateway.calls.call import (
    Call,
    JobFacts,
    NeverStarted,
    ProducedArtifact,
    ToolCall,
    ToolOutcome,
    Unknown,
    Verdict,
    failed,
    read_again,
    read_request,
)
from ductile_gateway.calls.policy import after_run
from ductile_gateway.calls.results import MAX_ARTIFACTS, MAX_RESULT_BYTES, answer_to, fit_for_event, from_form
from ductile_gateway.plugins.response import CallRemains, judge
from ductile_gateway.status import findings_of
from ductile_gateway.telemetry import CallTelemetry, GatewayMetrics, Spans
from groundwork.service.errors import GiveUp
from groundwork.telemetry.span import Span
from schemas.events import RESERVED_KEYS
from schemas.status import Finding, Halt
from tests.gateway.parts import (
    CATALOG,
    DONE,
    FORM,
    ILLEGAL_NAMES,
    NOON,
    RUN,
    TRACE,
    FakeRunner,
    World,
    a_request,
    asked_for,
    message_of,
    offering,
    outcomes,
    result_in,
)

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
        with pytest.raises(GiveUp, match=field) as refusal:
            read_request(SUBJECT, changed(**{field: name}), HEADERS)
        assert len(str(refusal.value)) < 1500
    for subject in (f"agentic.tool_request.{name}", "agentic.tool_request", "agentic.x.y"):
        with pytest.raises(GiveUp, match="subject"):
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
    with pytest.raises(GiveUp) as refusal:
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


async def test_an_artifact_that_was_replaced_is_not_given_to_a_tool() -> None:
    world, told, forged = World(), hashlib.sha256(b"told").hexdigest(), []
    wanted = [(ProducedArtifact("a.md", "text/markdown", b"told"), ["a.md"])]
    await world.ledger.name_artifacts(RUN, "call-1", wanted, at=NOON)
    for step, name in enumerate(("a.md", f"fetch-02-relayed-{told[:16]}.txt"), start=1):
        for attempt, content in enumerate((b"told", b"forged"), start=1):
            world.artifacts.kept[f"{RUN}/{name}"] = content, "text/plain"
            request = a_request("read", {"document": f"artifacts/{name}"}, step=step, attempt=attempt)
            await world.relay().take(asked_for(request))
        forged.append(world.bus.results[-1].error)
    assert outcomes(world) == ["ok", "artifact_changed"] * 2
    assert [error.retryable for error in forged] == [False, False]


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


@pytest.mark.parametrize(("bad", "kept"), [("\0", "\ufffd"), ("\ud800", "?")])
def test_a_text_that_no_event_can_carry_is_replaced(bad: str, kept: str) -> None:
    fit = fit_for_event(ToolOutcome("ok", text=f"a{bad}", output={f"b{bad}": [f"c{bad}", 1]}))
    assert (fit.text, fit.output) == (f"a{kept}", {f"b{kept}": [f"c{kept}", 1]})
    asked = from_form(ToolOutcome("ok", text=FORM.replace("unsat", bad)), {"jina-reader"})
    assert (asked.status, asked.text) == ("continuation", kept)


def test_a_tool_that_floods_the_run_with_artifacts_has_failed() -> None:
    small = fit_for_event(ToolOutcome("ok", artifacts=(PAGE,) * (MAX_ARTIFACTS + 1)))
    assert (small.status, small.error_class, small.retryable) == ("error", "bad_output", False)


def admitted(request: Any) -> Any:
    return offering(CATALOG).admit(asked_for(request), now=NOON)


UNKNOWN = Unknown("it was started, and nobody saw its end")
LATE = failed("timeout", "it did not answer in time", retryable=True)
GARBLED = failed("bad_output", "it wrote no response", retryable=True)
STOPPED = judge(CallRemains(found={"began": b"7 1.5", "stopped": b"memory_mb", "exit": b"137 2.5"}))
TOLD = failed("tool_error", "no such page", retryable=False)


@pytest.mark.parametrize(
    ("verdict", "of_a_read", "of_a_write"),
    [
        (TOLD, ("tool_error", False), ("tool_error", False)),
        (LATE, ("timeout", True), ("in_doubt", False)),
        (GARBLED, ("bad_output", True), ("in_doubt", False)),
        (STOPPED, ("bad_output", False), ("in_doubt", False)),
        (UNKNOWN, ("transient", True), ("in_doubt", False)),
        (NeverStarted(), ("transient", True), ("transient", True)),
    ],
)
def test_a_write_whose_outcome_nobody_knows_is_in_doubt(verdict: Verdict, of_a_read: Any, of_a_write: Any) -> None:
    for command, expected in (("handle", of_a_read), ("tag", of_a_read), ("save", of_a_write)):
        outcome = after_run(verdict, admitted(a_request(command)))
        assert (outcome.error_class, outcome.retryable) == expected


@pytest.mark.parametrize("made", [DONE, failed("tool_error", "no", retryable=True)])
def test_a_write_that_was_run_more_than_once_says_so_or_is_in_doubt_where_that_escalates(made: ToolOutcome) -> None:
    rerun, save = replace(made, job=JobFacts("job-7", attempts=2)), admitted(a_request("save"))
    told = after_run(rerun, save, escalates=False)
    assert (told.status, told.error_class) == (made.status, made.error_class)
    assert "Ductile ran it 2 times" in (told.message or told.text)
    doubt = after_run(rerun, save, escalates=True)
    assert (doubt.error_class, doubt.retryable, doubt.job.job_id) == ("in_doubt", False, "job-7")
    assert "job job-7 of Ductile" in str(doubt.message)
    assert after_run(rerun, admitted(a_request("tag")), escalates=True) == rerun


@pytest.mark.parametrize("name", [*sorted(RESERVED_KEYS), "Run_ID", "TOOL", " step", "attempt ", "\uff52un_id"])
def test_no_argument_may_have_a_reserved_name_or_look_like_one(name: str) -> None:
    assert admitted(a_request(payload={"url": "x", name: "other"})).error_class == "invalid_arguments"
    assert isinstance(admitted(a_request(payload={"url": "x", "deeper": {name: "is harmless"}})), ToolCall)


def test_a_deadline_is_later_by_all_stops_that_the_call_waited_through() -> None:
    gate, asked = PauseGate(), asked_for(a_request(deadline_at=NOON + timedelta(seconds=60)))
    for number in (1, 2):
        since = NOON + timedelta(seconds=30 * number)
        gate.update(Halt(number=number, since=since, until=since + timedelta(seconds=10), over=True))
    assert gate.with_time_stopped(asked).request.deadline_at == NOON + timedelta(seconds=80)


async def test_each_committed_step_of_a_call_is_one_line_with_its_trace_and_its_job_a_span_of_its_own_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    spans: list[Span] = []

    class Taken(Spans):
        def wanted(self, _: object) -> bool:
            return True

        def take(self, span: Span) -> None:
            spans.append(span)

    ran = JobFacts(exit_code=1, began_at=NOON + timedelta(seconds=1), ended_at=NOON + timedelta(seconds=3))
    world = World(runner=FakeRunner(replace(failed("not_found", "no such page", retryable=False), job=ran)))
    world.observer = CallTelemetry(GatewayMetrics(), Taken(None), urls={"": ""})
    world.clock.advance(0.25)
    await world.relay().take(asked_for())
    begun, answered = (vars(record) for record in caplog.records if getattr(record, "state_transition", None))
    assert [line["state_transition"] for line in (begun, answered)] == ["asked->begun", "begun->answered"]
    for line in (begun, answered):
        assert (line["run_id"], line["step"], line["tool"], line["attempt"]) == (RUN, 1, "fetch", 1)
        assert (line["trace_id"], line["latency_ms"], line["levelname"]) == (TRACE, 250, "INFO")
    assert (answered["status"], answered["error_class"]) == ("error", "not_found")
    assert (spans[0].started_at, spans[0].ended_at) == (ran.began_at, ran.ended_at)


async def test_a_part_that_does_not_answer_is_a_finding_and_holds_up_none_of_the_others() -> None:
    async def never() -> Sequence[Finding]:
        await asyncio.Event().wait()
        raise AssertionError

    async def fine() -> Sequence[Finding]:
        return [Finding(name="one", mark="ok", text="as it should be")]

    told = await findings_of({"slow": never, "one": fine}, within_s=0.05)
    assert [(finding.name, finding.mark) for finding in told] == [("slow", "warning"), ("one", "ok")]
