"""Turns an event from outside into a start, result, signal or cancel for the agent, as the configuration maps it. Pure.

Correlation keys (run, step, tool, attempt and capability) come from the places that a mapping names, or from a relayed
event's baggage, and never from elsewhere in the content: RFC-103.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import JsonValue, ValidationError

from ductile_gateway.calls.call import CALL_ID
from ductile_gateway.calls.excerpts import cut
from ductile_gateway.calls.results import MAX_MESSAGE_BYTES, Kept
from ductile_gateway.ductile.relay_wire import ReceivedEvent
from ductile_gateway.webhooks.inbound_settings import EventMapping, ToCancel, ToResult, ToSignal, ToStart
from ductile_gateway.webhooks.results import FindOffer, as_said, made_small
from schemas import keys, subjects
from schemas.events import INBOUND, RESERVED_KEYS, AgenticStart, Cancel, Signal, ToolResult
from schemas.fields import MAX_GOAL_BYTES, flaws_of
from schemas.values import dataclass


class RequestRefused(Exception):
    """The request can never be taken as it is. `why` is for our log, where it says more than its sender is told."""

    def __init__(self, status: int, message: str, *, why: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.why = why or message


MAX_EVENT_BYTES = 512 * 1024
LONGEST_ID = 128
CORRELATION = ("run_id", "step", "tool", "attempt", "capability", "task", "round")
_IN_BAGGAGE = CORRELATION[:5]
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_SLOT = re.compile(r"\{(/[^{}]*)\}")
_ID = re.compile(r"[A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`strange`: anybody may have written it. `keeps_names`: a start called `agentic:start:<id>` (RFC-103) is known by
    that id, and not below its source. `traceparent`: as the sender said it."""

    source: str
    event_id: str
    at: datetime
    strange: bool = False
    keeps_names: bool = False
    traceparent: str | None = None

    @property
    def wake_id(self) -> str:
        external = self.event_id.removeprefix(keys.start(""))
        if self.keeps_names and external != self.event_id:
            return token(external)
        return token(f"{self.source}:{self.event_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """`key` is the Msg-Id; `about` the run id, or a start's wake id. `artifacts`: to be stored before."""

    subject: str
    body: bytes
    key: str
    about: str
    run_id: str | None
    artifacts: tuple[Kept, ...] = ()


def token(text: str) -> str:
    fits = len(text) <= LONGEST_ID and _ID.fullmatch(text)
    return text if fits else f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"


def find(document: JsonValue, pointer: str) -> JsonValue:
    here = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        match here:
            case dict() if name in here:
                here = here[name]
            case list() if _INDEX.fullmatch(name) and int(name) < len(here):
                here = here[int(name)]
            case _:
                raise RequestRefused(422, f"the event has nothing at {pointer}")
    return here


def fill(template: str, document: JsonValue) -> str:
    """The template with each `{/place}` replaced by what is there: text as it is, anything else as JSON."""
    return _SLOT.sub(lambda slot: _text(find(document, slot[1])), template)


def of_document(mapping: EventMapping, document: JsonValue, origin: Origin, find_offer: FindOffer) -> Outgoing:
    return _message(mapping.to, _payload(mapping, document, origin), origin, find_offer)


def of_relayed(event: ReceivedEvent, mapping: EventMapping | None, origin: Origin, find_offer: FindOffer) -> Outgoing:
    """By its type, by a mapping of `{"type", "payload", "baggage"}`, or by its baggage, in this order. Raises
    RequestRefused."""
    if event.type == subjects.START:
        return _message(subjects.START, _start(event.payload), origin, find_offer)
    if event.type == subjects.TOOL_RESULT:
        brought = {name: event.baggage[name] for name in ("capability",) if name in event.baggage}
        return _message(subjects.TOOL_RESULT, _result({**event.payload, **brought}, origin), origin, find_offer)
    if mapping is not None:
        parts: dict[str, JsonValue] = {"payload": dict(event.payload), "baggage": dict(event.baggage)}
        return of_document(mapping, {"type": event.type, **parts}, origin, find_offer)
    if {"run_id", "step", "tool"} <= event.baggage.keys():
        return _message(subjects.TOOL_RESULT, _resume(event, origin), origin, find_offer)
    raise RequestRefused(422, "event type is not mapped, and its baggage names no run, step and tool")


def _payload(mapping: EventMapping, document: JsonValue, origin: Origin) -> dict[str, JsonValue]:
    match mapping:
        case ToStart():
            places = mapping.context.items()
            told: dict[str, JsonValue] = {name: find(document, place) for name, place in places}
            start = _start({"goal": fill(mapping.goal, document), "context": told})
            return start | {"untrusted": origin.strange and (bool(told) or _SLOT.search(mapping.goal) is not None)}
        case ToResult():
            return _result(_chosen(mapping, document), origin)
        case ToSignal():
            return _run(mapping, document) | _said(mapping, document, origin)
        case ToCancel():
            why = fill(mapping.reason, document) if mapping.reason else None
            return _run(mapping, document) | {"reason": why}


def _said(mapping: ToSignal, document: JsonValue, origin: Origin) -> dict[str, JsonValue]:
    names = ("step", "arguments_hash", "outcome")
    said = {name: find(document, place) for name in names if (place := getattr(mapping, name)) is not None}
    lacking = next((name for name, value in said.items() if value is None), None)
    if mapping.kind == "approve" and lacking:
        raise RequestRefused(422, f"the event has nothing at {getattr(mapping, lacking)}, so that it allows nothing")
    if mapping.message is not None:
        said["message"] = fill(mapping.message, document)
        said["untrusted"] = origin.strange and not mapping.trusted and _SLOT.search(mapping.message) is not None
    if mapping.constraints:
        said["constraints"] = {name: find(document, place) for name, place in mapping.constraints.items()}
    return said | {"kind": mapping.kind, "signal_id": token(f"{origin.source}:{origin.event_id}")}


def _run(mapping: ToSignal | ToCancel, document: JsonValue) -> dict[str, JsonValue]:
    return {"run_id": find(document, mapping.run_id)}


def _chosen(mapping: ToResult, document: JsonValue) -> dict[str, JsonValue]:
    status = "ok" if mapping.status is None else find(document, mapping.status)
    fields = (*CORRELATION, "error" if status == "error" else "result")
    places = {name: getattr(mapping, name) for name in fields}
    chosen = {name: find(document, place) for name, place in places.items() if place is not None}
    return {"status": status, **chosen}


def _start(payload: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    start = {name: payload[name] for name in ("goal", "context", "constraints", "untrusted") if name in payload}
    context = start.get("context")
    if isinstance(context, dict):
        start["context"] = _without_correlation(context)
    goal = start.get("goal")
    if isinstance(goal, str) and len(goal.encode()) > MAX_GOAL_BYTES:
        raise RequestRefused(413, f"the goal is longer than {MAX_GOAL_BYTES} bytes")
    return start


def _resume(event: ReceivedEvent, origin: Origin) -> dict[str, JsonValue]:
    correlation = {name: event.baggage[name] for name in _IN_BAGGAGE if name in event.baggage}
    task, number = _sub_request(event.baggage)
    told = {"untrusted": event.payload.get("untrusted") in (True, "true")}
    result = {**correlation, **told, "task": task, "round": number, "status": "ok", "result": dict(event.payload)}
    return _result(result, origin)


def _sub_request(baggage: Mapping[str, JsonValue]) -> tuple[str | None, int | None]:
    call_id, run_id, step, tool = (baggage.get(name) for name in (CALL_ID, "run_id", "step", "tool"))
    if isinstance(call_id, str) and isinstance(step, int):
        return keys.called(call_id, str(run_id), step, str(tool)) or (None, None)
    return None, None


def _result(payload: Mapping[str, JsonValue], origin: Origin) -> dict[str, JsonValue]:
    fields = (*CORRELATION, "status", "error", "completed_at", "untrusted")
    result = {name: payload[name] for name in fields if name in payload}
    result.setdefault("completed_at", origin.at.isoformat())
    if "error" in result:
        result["error"] = _error(result["error"])
    return result | {"result": _output(payload.get("result"))}


def _error(told: JsonValue) -> JsonValue:
    fields: JsonValue = {"message": told} if isinstance(told, str) else told
    if isinstance(fields, dict) and isinstance(message := fields.get("message"), str):
        return fields | {"message": cut(message, MAX_MESSAGE_BYTES)}
    return fields


def _output(brought: JsonValue) -> JsonValue:
    match brought:
        case None:
            return None
        case dict():
            return _without_correlation(brought)
        case str():
            return {"summary": brought}
    return {"output": brought}


def _without_correlation(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in fields.items() if name not in RESERVED_KEYS}


def _message(subject: str, payload: Mapping[str, JsonValue], origin: Origin, find_offer: FindOffer) -> Outgoing:
    try:
        message = INBOUND[subject].model_validate({"type": subject, "payload": payload})
    except ValidationError as error:
        raise RequestRefused(422, f"no valid {subject} comes of it: {flaws_of(error)}") from None
    content, artifacts = message.payload, tuple[Kept, ...]()
    if isinstance(content, ToolResult):
        told = content.model_copy(update={"untrusted": origin.strange or content.untrusted})
        content, artifacts = made_small(as_said(told, find_offer))
    else:
        content = content.model_copy(update={"by": origin.source})
    key, about, run_id = _names(content, origin)
    body = message.model_copy(update={"dedupe_key": key, "payload": content}).body()
    if len(body) > MAX_EVENT_BYTES:
        raise RequestRefused(413, f"the event would have more than {MAX_EVENT_BYTES} bytes")
    return Outgoing(subject=subject, body=body, key=key, about=about, run_id=run_id, artifacts=artifacts)


def _names(payload: Any, origin: Origin) -> tuple[str, str, str | None]:
    match payload:
        case AgenticStart():
            return keys.start(origin.wake_id), origin.wake_id, None
        case ToolResult():
            task = payload.task if payload.round else None  # without its round it has no key of its own
            key = keys.result(payload.run_id, payload.step, payload.attempt or 1, task, payload.round)
            return key, payload.run_id, payload.run_id
        case Signal():
            return (
                keys.of(subjects.SIGNAL, payload.run_id, signal_id=payload.signal_id),
                payload.run_id,
                payload.run_id,
            )
        case Cancel():
            return keys.of(subjects.CANCEL, payload.run_id), payload.run_id, payload.run_id
    raise AssertionError(payload)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
