"""From an outcome to the message on the bus: small, complete, and the same however often it is made."""

import hashlib
import json
from typing import Any

from pydantic import JsonValue

from ductile_gateway.calls.call import Answer, ProducedArtifact, ToolOutcome
from ductile_gateway.calls.results import MAX_ARTIFACTS, MAX_RESULT_BYTES, Kept, answer_to, made_fit
from schemas import keys
from schemas.events import Envelope, ToolResult
from tests.gateway.parts import NOON, RUN, a_request, asked_for, result_in

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


def kept_of(outcome: ToolOutcome) -> list[Kept]:
    """The artifacts of an outcome under their own names."""
    return [Kept(artifact.name, artifact) for artifact in outcome.artifacts]


def test_a_result_names_its_run_step_tool_and_attempt_and_carries_the_key_of_the_result() -> None:
    asked = asked_for(a_request(step=3, attempt=2))
    envelope = Envelope[ToolResult].model_validate_json(answer_to(asked, ToolOutcome("ok"), (), at=NOON).body)
    result = envelope.payload
    assert (result.run_id, result.step, result.tool, result.attempt) == (RUN, 3, "fetch", 2)
    assert (envelope.dedupe_key, result.completed_at) == (keys.result(RUN, 3, 2), NOON)


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


def test_large_text_and_large_output_become_artifacts_with_a_line_for_each_value() -> None:
    rows: dict[str, JsonValue] = {"rows": [{"n": n, "deep": [[["é"]]]} for n in range(200)]}
    small = made_fit(ToolOutcome("ok", text=WORDS, output=rows, artifacts=(PAGE,)))
    assert [artifact.name for artifact in small.artifacts] == ["page.html", "output.txt", "output.json"]
    _, text, large = (artifact.content for artifact in small.artifacts)
    assert (text.decode(), json.loads(large), small.output) == (WORDS, rows, {})
    assert max(map(len, large.splitlines())) < 20


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
