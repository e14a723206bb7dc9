"""An event as Ductile's relay sends it: read and checked as Ductile's own ingress does. Pure.

`{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "plugin", "job_id", "event_id"}, "baggage"}`; other
fields are passed over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from ductile_gateway.calls.refusals import Refused

_TYPE = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """One event. `event_id` is what its sender calls it: empty when it has no name for it."""

    type: str
    payload: Mapping[str, JsonValue]
    baggage: Mapping[str, JsonValue]
    instance: str
    event_id: str


def read_envelope(document: JsonValue) -> Relayed:
    """The event in a body. Raises Refused."""
    root = _object(document)
    event, origin = _object(root.get("event")), _object(root.get("origin"))
    event_type = _text(event, "type")
    if not event_type:
        raise Refused(400, "event.type is required")
    if not _TYPE.fullmatch(event_type):
        raise Refused(400, "event.type must use lower-case dotted form")
    return Relayed(
        type=event_type,
        payload=_object(event.get("payload")),
        baggage=_object(root.get("baggage")),
        instance=_text(origin, "instance"),
        event_id=_text(event, "dedupe_key") or _origin_id(origin),
    )


def _origin_id(origin: Mapping[str, JsonValue]) -> str:
    job_id, event_id = _text(origin, "job_id"), _text(origin, "event_id")
    return f"{job_id}:{event_id}" if event_id else ""


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    match value:
        case None:
            return {}
        case dict():
            return value
    raise Refused(400, "invalid JSON body")


def _text(fields: Mapping[str, JsonValue], name: str) -> str:
    match fields.get(name):
        case None:
            return ""
        case str(text):
            return text.strip()
    raise Refused(400, "invalid JSON body")
