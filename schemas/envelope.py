"""Message headers (correlation, trace context, CloudEvents 1.0), and the accepted forms of inbound messages.

    enveloped    {"type", "payload", "dedupe_key"?}; its headers do not matter (ours carry ce-* as well)
    structured   CloudEvents 1.0 in JSON: {"specversion", "id", "source", "type", "data"}
    binary       CloudEvents 1.0 in ce-* headers (its NATS protocol binding), with the payload as the body
    bare         the payload alone: its subject says the type

A CloudEvent's source and id together (CloudEvents 1.0, 3.1) are the dedupe key if its data has none; an id that is a
key of this contract is the key itself. A rejection names its message, and quotes nothing else of it.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from schemas import keys, subjects
from schemas.bounded import json_object
from schemas.events import Envelope, Rejected

MSG_ID = "Nats-Msg-Id"
RUN_ID = "Agentic-Run-Id"
TRACEPARENT = "traceparent"
CAPABILITY = "Agentic-Capability"
SIGNATURE = "Agentic-Signature"
"""`<key id>.<base64url>` of an Ed25519 signature over subject, newline and body."""
HEAD = "Agentic-Head"
"""The run's newest entry, its hash, and a MAC by which the agent recognises both."""
RETRIED_BY = "Agentic-Retried-By"


def event_headers(
    event_type: str,
    *,
    dedupe_key: str,
    source: str,
    at: datetime,
    run_id: str = "",
    trace_id: str = "",
    span_id: str = "",
    sampled: bool = True,
) -> dict[str, str]:
    """Headers of one event, and of its run, if it has one. `at` is in UTC; `trace_id` 32 hex digits (the W3C trace of
    the run). The span id (16 hex digits) is derived from the dedupe key unless it is given, so that a message published
    again has the same context.
    """
    headers = {
        "ce-specversion": "1.0",
        "ce-id": dedupe_key,
        "ce-type": event_type,
        "ce-source": source,
        "ce-time": f"{at.replace(tzinfo=None).isoformat()}Z",
    }
    if run_id:
        headers[RUN_ID] = run_id
    if trace_id:
        span_id = span_id or hashlib.sha256(dedupe_key.encode()).hexdigest()[:16]
        headers[TRACEPARENT] = f"00-{trace_id}-{span_id}-{sampled:02d}"
    return headers


Json = dict[str, Any]

_PREFIX = "ce-"
_ENVELOPED = re.compile(rb'\s*\{\s*"type"\s*:\s*"[^"\\]*"\s*,\s*"payload"\s*:')
"""Most are: the model alone parses them."""
_CAPABILITY = re.compile(rb'"payload":\{"capability":"[A-Za-z0-9._-]*",')
_LONGEST_ATTRIBUTE = 512
_SHAPES = {
    subjects.START: '{"goal": "..."}',
    subjects.TOOL_RESULT: '{"run_id": "...", "step": 1, "tool": "...", "status": "ok", "completed_at": "...Z"}',
    subjects.CANCEL: '{"run_id": "..."}',
    subjects.SIGNAL: '{"run_id": "...", "signal_id": "...", "kind": "message"}',
}


class Misshapen(ValueError):
    """A CloudEvent without an event of this contract; the text names the flaw, and quotes nothing."""


def to_envelope(subject: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Puts `body` into the envelope. Raises Misshapen."""
    if _ENVELOPED.match(body):
        return body
    message = json_object(body)
    if message is None or "payload" in message:
        return body
    if "specversion" in message:
        return _of_event(subject, message, _data(message))
    attributes = _attributes(headers)
    if "specversion" in attributes:
        return _of_event(subject, attributes, message)
    return body if "type" in message else _envelope(subject, message, message.get("dedupe_key"))


def without_capability(body: bytes) -> bytes:
    """`body`: of our own message, which has its capability first in its payload."""
    return _CAPABILITY.sub(b'"payload":{', body, count=1)


def expected_form(subject: str) -> str:
    return f'expected {{"type": "{subject}", "payload": {_SHAPES[subject]}}}, that payload alone, or a CloudEvent of it'


def _of_event(subject: str, attributes: Mapping[str, Any], data: Json) -> bytes:
    flaw = _flaw(subject, attributes)
    if flaw:
        raise Misshapen(flaw)
    event_id = attributes["id"]
    key = event_id if event_id.startswith("agentic:") else f"{attributes['source']} {event_id}"
    return _envelope(subject, data, data.get("dedupe_key") or key)


def _flaw(subject: str, attributes: Mapping[str, Any]) -> str:
    if attributes["specversion"] != "1.0":
        return "the CloudEvent's specversion is not 1.0"
    for name in ("id", "source", "type"):
        value = attributes.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ATTRIBUTE:
            return f"the CloudEvent's {name} is not a text of 1 to {_LONGEST_ATTRIBUTE} characters"
    return "" if attributes["type"] == subject else "the CloudEvent's type is not the subject that it came on"


def _data(event: Json) -> Json:
    data = event.get("data")
    if "data_base64" in event:
        try:
            data = json_object(base64.b64decode(event["data_base64"], validate=True))
        except (TypeError, ValueError):  # not base64, also by what is beyond ASCII
            data = None
    if not isinstance(data, dict):
        raise Misshapen("the CloudEvent's data is not a JSON object")
    return data


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    named = ((name.lower(), value) for name, value in headers.items())
    return {name.removeprefix(_PREFIX): unquote(value) for name, value in named if name.startswith(_PREFIX)}


def _envelope(subject: str, payload: Json, dedupe_key: Any) -> bytes:
    return json.dumps({"type": subject, "payload": payload, "dedupe_key": dedupe_key}).encode()


_NAME = re.compile(r"[!-~]{1,512}")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_NUMBERED = re.compile(r"(.+)#([1-9][0-9]{0,5})")
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def rejection(
    subject: str,
    body: bytes,
    headers: Mapping[str, str],
    seq: int,
    *,
    stream: str,
    reason: str,
    source: str,
    at: datetime,
) -> tuple[str, bytes, str, dict[str, str]]:
    """The `agent.rejected` event of a refused message: subject, body, key and headers, in the trace of the message.

    Raises ValueError for a refused rejection: rejecting that would never end.
    """
    if subject == subjects.REJECTED:
        raise ValueError("a rejection is not rejected again")
    told = Rejected(subject=subject, stream_seq=seq, reason=reason, **_related(body, headers))
    key = keys.dedupe_key(subjects.REJECTED, stream=stream, stream_seq=seq)
    described = event_headers(subjects.REJECTED, dedupe_key=key, source=source, at=at, run_id=told.run_id or "")
    if _TRACEPARENT.fullmatch(trace := headers.get(TRACEPARENT, "")):
        described[TRACEPARENT] = trace
    event = Envelope[Rejected](type=subjects.REJECTED, payload=told, dedupe_key=key)
    return event.type, event.body(), key, described


def _related(body: bytes, headers: Mapping[str, str]) -> Json:
    message = json_object(body) or {}
    payload: Json = next(
        (message[name] for name in ("payload", "data") if isinstance(message.get(name), dict)), message
    )
    msg_id = _fit(_NAME, headers.get(MSG_ID))
    numbered = _NUMBERED.fullmatch(msg_id or "")
    next_id = f"{numbered[1]}#{int(numbered[2]) + 1}" if numbered else f"{msg_id}#2"
    return {
        "msg_id": msg_id,
        "dedupe_key": _fit(_NAME, message.get("dedupe_key")) or _fit(_NAME, payload.get("dedupe_key")),
        "run_id": _fit(_ID, payload.get("run_id")) or _fit(_ID, headers.get(RUN_ID)),
        "step": payload.get("step"),
        "repeat_as": msg_id and next_id,
    }


def _fit(form: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and form.fullmatch(value) else None
