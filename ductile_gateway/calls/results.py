"""Makes the result on the bus from the outcome of a tool. Pure.

The text of a tool may be a markdown form with its status, or a continuation. Only a form in the plugin's own name
counts: a page that it fetched must not ask for tools. Results are small: large texts and outputs become artifacts,
listed by path, type, size and hash (RFC-103).
"""

import contextlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from ductile_gateway.calls.artifacts import STDERR_BYTES, artifact_path, artifact_text, clipped
from ductile_gateway.calls.call import (
    ANSWERED,
    Call,
    CallRequest,
    JobFacts,
    ProducedArtifact,
    ToolOutcome,
    Verdict,
    failed,
)
from ductile_gateway.calls.policy import UNCERTAIN
from schemas import envelope, keys, subjects
from schemas.bounded import storable
from schemas.continuation import Continuation, read_plugin_result
from schemas.events import Correlation, Envelope, ToolError, ToolOutput, ToolResult
from schemas.markdown_form import is_form
from schemas.values import replace

MAX_CONTINUATION_BYTES = 64 * 1024


def with_markdown_form(verdict: Verdict, *, plugin: str, reads: bool) -> Verdict:
    """The verdict with its markdown form applied, if its text is one. `reads`: a form counts beside status ok, too."""
    if not isinstance(verdict, ToolOutcome) or verdict.continuation or verdict.status == "error":
        return verdict
    if verdict.status == "ok" and not (reads and is_form(verdict.text)):
        return verdict
    if not is_form(verdict.text):
        return unreadable(verdict, "it has no `continuation`, and its `result` is not in the markdown form")
    return from_form(verdict, {plugin, verdict.said_by or plugin})


def unreadable(outcome: ToolOutcome, flaws: str) -> ToolOutcome:
    message = f"what the plugin asks for, or how it went, cannot be read: {flaws}"
    return replace(failed("bad_output", message, retryable=False), job=outcome.job)


def continuation_fields(continuation: Continuation) -> dict[str, JsonValue]:
    return dict(continuation.model_dump(mode="json", exclude_none=True))


def from_form(outcome: ToolOutcome, names: Collection[str], *, strangers: bool = False) -> ToolOutcome:
    """The outcome as the form in its text says. `names`: of the tool; the plugin `echo` of the Ductile `home` is the
    tool `home_echo`. `strangers`: a form of another plugin is a text like any other, and not unreadable."""
    try:
        form = read_plugin_result(storable(outcome.text))
    except ValueError as flaws:
        return unreadable(outcome, str(flaws))
    if not any(name == form.plugin or name.endswith(f"_{form.plugin}") for name in names):
        if strangers:
            return outcome
        return unreadable(outcome, f"Plugin is {form.plugin[:64]}, and the plugin is {' or '.join(sorted(names))}")
    if form.continuation:
        reason = form.continuation.reason or ""
        return replace(outcome, status="continuation", text=reason, continuation=form.continuation)
    if outcome.status == "continuation":
        return unreadable(outcome, f"Status is {form.status} beside a status `continuation`")
    if form.status == "error":
        return replace(failed("tool_error", form.text, retryable=False), output=_mark(outcome), job=outcome.job)
    confidence = {"confidence": form.confidence} if form.confidence else {}
    return replace(outcome, text=form.text, output={**confidence, **outcome.output})


SOURCE = "/agentic-loop/ductile-gateway"
MAX_OUTPUT_BYTES = 4 * 1024
MAX_SUMMARY_BYTES = 12 * 1024
"""The model is shown this much of a result. A longer text becomes an artifact, and its start is shown."""
MAX_MESSAGE_BYTES = 4 * 1024
EXCERPT_BYTES = 8 * 1024
LEAST_EXCERPT_BYTES = 1024
BROUGHT_BYTES = 2 * 1024
"""Part of a text that is quoted in the error that says why it could not be stored."""
MAX_ARTIFACTS = 100
MAX_RESULT_BYTES = 512 * 1024

NO_ROOM = "storage_full"
UNSEEN = frozenset({"timeout", "in_doubt"})
"""Errors of calls whose end was not seen."""

_Message = Envelope[ToolResult]


def fit_for_event(outcome: ToolOutcome) -> ToolOutcome:
    """The outcome as an event can carry it: texts are storable, and large ones are artifacts."""
    if outcome.status == "error":
        return outcome
    if outcome.continuation and len(to_json(continuation_fields(outcome.continuation))) > MAX_CONTINUATION_BYTES:
        return unreadable(outcome, f"it has more than {MAX_CONTINUATION_BYTES} bytes")
    if len(outcome.artifacts) > MAX_ARTIFACTS:
        message = f"the tool has run and made {len(outcome.artifacts)} artifacts, and at most {MAX_ARTIFACTS} are taken"
        return replace(failed("bad_output", message, retryable=False), job=outcome.job)
    text, artifacts, (output, written) = storable(outcome.text), outcome.artifacts, _written(dict(outcome.output))
    if _is_large(text):
        artifacts = (*artifacts, ProducedArtifact("output.txt", "text/plain", text.encode()))
    if len(written) > MAX_OUTPUT_BYTES:
        # One line per value, so that parts can be read. Without indentation, which multiplies the size of deep nesting.
        artifacts = (*artifacts, ProducedArtifact("output.json", "application/json", to_json(output, indent=0)))
        output = _mark(outcome)
    return replace(outcome, text=text, output=output, artifacts=artifacts)


def answer_to(asked: CallRequest, outcome: ToolOutcome, *, at: datetime) -> Call:
    """`outcome`: fit for an event, its artifacts under the names that they are kept by."""
    request = asked.request
    answered = {name: getattr(request, name) for name in Correlation.model_fields}
    result = ToolResult(**answered, **ending(outcome, at), untrusted=is_untrusted(outcome.output))
    key = keys.result(request.run_id, request.step, request.attempt, request.task, request.round)
    message = _Message(type=subjects.TOOL_RESULT, payload=result, dedupe_key=key)
    return Call.of(asked, state=ANSWERED, dedupe_key=key, body=message.body(), at=at)


def ending(outcome: ToolOutcome, at: datetime) -> dict[str, Any]:
    fields = {"error": _error(outcome)} if outcome.status == "error" else {"result": output_of(outcome)}
    return {"status": outcome.status, "result": None, "error": None, **fields, "completed_at": at}


def with_capability(answer: Call, capability: str | None) -> Call:
    """The answer with the capability of the repeated request, which may be by a newer key."""
    message = _Message.model_validate_json(answer.body)
    if message.payload.capability == capability:
        return answer
    payload = message.payload.model_copy(update={"capability": capability})
    return replace(answer, body=message.model_copy(update={"payload": payload}).body())


def not_stored(outcome: ToolOutcome, why: str) -> ToolOutcome:
    """An error for a person, with the start of the text that the tool brought: it has run and is not run again."""
    texts = (text for artifact in outcome.artifacts if (text := artifact_text(artifact)) is not None)
    began = clipped("\n".join(filter(None, (outcome.text, next(texts, "")))), BROUGHT_BYTES)
    message = f"the tool has run, and there was no room for what it brought: {why}. It brought: {began or 'no text'}"
    return replace(failed(NO_ROOM, message, retryable=outcome.retryable), output=_mark(outcome), job=outcome.job)


def late_answer(answer: Call, outcome: ToolOutcome) -> Call | None:
    """The late result of a call whose end was not seen; None if it was. Deterministic: a gateway that dies before it
    notes that it has published the late result publishes it again."""
    answered: ToolResult = _Message.model_validate_json(answer.body).payload
    if answered.error is None or answered.error.error_class not in UNSEEN:
        return None
    fit, at = fit_for_event(replace(outcome, artifacts=())), outcome.job.ended_at or answer.at
    if answered.error.error_class == "in_doubt" and fit.error_class in UNCERTAIN:
        return None  # it is as much in doubt as before
    late = answered.model_copy(update=ending(replace(fit, artifacts=()), at))
    key = keys.result(late.run_id, late.step, late.attempt or 1, late.task, late.round) + keys.LATE_SUFFIX
    message = _Message(type=subjects.TOOL_RESULT, payload=late, dedupe_key=key)
    return replace(answer, body=message.body(), at=at, dedupe_key=key)


def headers_of(answer: Call) -> dict[str, str]:
    return envelope.event_headers(
        subjects.TOOL_RESULT,
        dedupe_key=answer.dedupe_key,
        source=SOURCE,
        at=answer.at.astimezone(UTC),
        run_id=answer.run_id,
        trace_id=answer.trace.trace_id,
        span_id=answer.trace.span_id,
        sampled=answer.trace.sampled,
    )


def output_of(outcome: ToolOutcome) -> ToolOutput:
    """`outcome`: as in `answer_to`, and no error."""
    kept = outcome.artifacts
    whole = next((one for one in kept if one.content == outcome.text.encode()), None) if kept else None
    where = artifact_path(whole.name) if whole else ""
    summary = clipped(outcome.text, EXCERPT_BYTES, where=where) if _is_large(outcome.text) else outcome.text
    fields: dict[str, JsonValue] = {"summary": summary}
    if outcome.output:
        fields["output"] = dict(outcome.output)
    if outcome.continuation:
        fields["continuation"] = continuation_fields(outcome.continuation)
    fields |= _of_job(outcome.job)
    if not kept:
        return ToolOutput.model_validate(fields)
    others = ((one, artifact_text(one)) for one in kept if one is not whole)
    room = max(LEAST_EXCERPT_BYTES, min(EXCERPT_BYTES, MAX_SUMMARY_BYTES - len(summary.encode())))
    first, text = next((found for found in others if found[1] is not None), (whole or kept[0], None))
    return ToolOutput.model_validate(
        fields
        | {
            "artifact_path": artifact_path(first.name),
            "content_type": first.content_type,
            "excerpt": None if text is None else clipped(text, room, where=artifact_path(first.name)),
            "artifacts": [_listed(one) for one in kept],
        }
    )


def _is_large(text: str) -> bool:
    return len(text.encode()) > MAX_SUMMARY_BYTES


def is_untrusted(output: Mapping[str, JsonValue]) -> bool:
    return output.get("untrusted") is True


def _mark(outcome: ToolOutcome) -> dict[str, JsonValue]:
    """Output of an error that quotes a result."""
    return {"untrusted": True} if is_untrusted(outcome.output) else {}


def _written(output: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], bytes]:
    """The output with storable texts, and its JSON."""
    with contextlib.suppress(ValueError):  # a lone surrogate
        written = to_json(output)
        if rb"\u0000" not in written:
            return output, written
    output = _storable(output)
    return output, to_json(output)


def _storable(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {storable(name): _storable(item) for name, item in value.items()}
    return value


def _error(outcome: ToolOutcome) -> ToolError:
    return ToolError(
        error_class=outcome.error_class or "tool_error",
        message=clipped(outcome.message or "the tool gave no reason", MAX_MESSAGE_BYTES),
        retryable=outcome.retryable,
        exit_code=outcome.job.exit_code,
        stderr=clipped(outcome.job.stderr, STDERR_BYTES) or None,
        last_error=storable(outcome.job.last_error) or None,
        **_of_job(outcome.job),
    )


def _of_job(job: JobFacts) -> dict[str, Any]:
    return ({"job_id": job.job_id} if job.job_id else {}) | ({"attempts": job.attempts} if job.was_rerun else {})


def _listed(one: ProducedArtifact) -> dict[str, JsonValue]:
    return {
        "path": artifact_path(one.name),
        "content_type": one.content_type,
        "size": len(one.content),
        "sha256": one.sha256,
    }
