"""Headers of a message: correlation, trace context and CloudEvents 1.0 in binary mode. Names are lower case or as given
here; NATS clients compare them by case."""

import hashlib

MSG_ID = "Nats-Msg-Id"
RUN_ID = "Agentic-Run-Id"
TRACEPARENT = "traceparent"
CAPABILITY = "Agentic-Capability"
SIGNATURE = "Agentic-Signature"
"""Who says this: `<key id>.<base64url>` of an Ed25519 signature over subject, newline and body."""
HEAD = "Agentic-Head"
"""With what is told of a run: its newest entry, the hash of that, and a MAC of the agent, for itself to know again."""
RETRIED_BY = "Agentic-Retried-By"


def of_event(
    event_type: str,
    *,
    dedupe_key: str,
    source: str,
    at: str,
    run_id: str,
    trace_id: str,
    span_id: str = "",
    sampled: bool = True,
) -> dict[str, str]:
    """Headers for one event. `at` is RFC 3339; `trace_id` 32 hex digits (the W3C trace of the run), which is recorded
    if it is `sampled`.

    The span id (16 hex digits) is derived from the dedupe key unless it is given, so that a message published again
    carries the same context.
    """
    span_id = span_id or hashlib.sha256(dedupe_key.encode()).hexdigest()[:16]
    correlation = {TRACEPARENT: f"00-{trace_id}-{span_id}-{sampled:02d}", RUN_ID: run_id}
    return correlation | of_cloud_event(event_type, dedupe_key=dedupe_key, source=source, at=at)


def of_cloud_event(event_type: str, *, dedupe_key: str, source: str, at: str) -> dict[str, str]:
    return {
        "ce-specversion": "1.0",
        "ce-id": dedupe_key,
        "ce-type": event_type,
        "ce-source": source,
        "ce-time": at,
    }
