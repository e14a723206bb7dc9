"""The forms in which others may send what the agent takes, all brought into the envelope of `events`. Pure.

    enveloped    {"type", "payload", "dedupe_key"?}; it stays so whatever its headers say (ours carry ce-* beside it)
    structured   CloudEvents 1.0 in JSON: {"specversion", "id", "source", "type", "data"}
    binary       CloudEvents 1.0 in ce-* headers (its NATS protocol binding), with the payload as the body
    bare         the payload alone: what it is follows from its subject

What makes a CloudEvent unique, its source and id together (CloudEvents 1.0, 3.1), is the dedupe key where its data has
none; an id that is a key of this contract is the key itself. Anything else is left as it came, for the model to refuse.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from schemas import subjects

Json = dict[str, Any]

_PREFIX = "ce-"
_CAPABILITY = re.compile(rb'"payload":\{"capability":"[A-Za-z0-9._-]*",')
_LONGEST_ATTRIBUTE = 512
_SHAPES = {
    subjects.START: '{"goal": "..."}',
    subjects.TOOL_RESULT: '{"run_id": "...", "step": 1, "tool": "...", "status": "ok", "completed_at": "...Z"}',
    subjects.CANCEL: '{"run_id": "..."}',
    subjects.SIGNAL: '{"run_id": "...", "signal_id": "...", "kind": "message"}',
}


class Misshapen(ValueError):
    """A CloudEvent that carries no event of this contract; the text says why, and quotes nothing of it."""


def enveloped(subject: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """`body` in the envelope. Raises Misshapen."""
    if body.startswith(f'{{"type":"{subject}","payload":'.encode()):
        return body  # as our own services write it: read once, by the model
    message = object_in(body)
    if message is None or "payload" in message:
        return body
    if "specversion" in message:
        return _of_event(subject, message, _data(message))
    attributes = _attributes(headers)
    if "specversion" in attributes:
        return _of_event(subject, attributes, message)
    return body if "type" in message else _envelope(subject, message, message.get("dedupe_key"))


def with_capability(body: bytes, capability: str) -> bytes:
    """A message of ours whose payload holds `capability`, which is of letters, digits and ._- alone, first of all."""
    before, opens, after = body.partition(b'"payload":{')
    return b"".join((before, opens, b'"capability":"', capability.encode(), b'",', after))


def without_capability(body: bytes) -> bytes:
    return _CAPABILITY.sub(b'"payload":{', body, count=1)


def expected(subject: str) -> str:
    return f'expected {{"type": "{subject}", "payload": {_SHAPES[subject]}}}, that payload alone, or a CloudEvent of it'


def object_in(body: bytes) -> Json | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of_event(subject: str, attributes: Mapping[str, Any], data: Json) -> bytes:
    flaw = _flaw(subject, attributes)
    if flaw:
        raise Misshapen(flaw)
    return _envelope(subject, data, data.get("dedupe_key") or _key(attributes["source"], attributes["id"]))


def _key(source: str, event_id: str) -> str:
    return event_id if event_id.startswith("agentic:") else f"{source} {event_id}"


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
            data = object_in(base64.b64decode(event["data_base64"], validate=True))
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
