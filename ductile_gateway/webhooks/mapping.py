"""Maps an incoming event to a start, result, signal or cancel for the agent, by the configuration. Pure.

Correlation keys (run, step, tool, attempt, capability) come only from the pointers of a mapping or the baggage of a
relayed event, never from elsewhere in the content: RFC-103.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, JsonValue, StringConstraints, ValidationError

from ductile_gateway.calls.artifacts import SUFFIXES, clipped, media_type
from ductile_gateway.calls.call import CALL_ID, ProducedArtifact, ToolOutcome
from ductile_gateway.calls.policy import reads_form
from ductile_gateway.calls.results import (
    MAX_MESSAGE_BYTES,
    continuation_fields,
    ending,
    fit_for_event,
    from_form,
    output_of,
)
from ductile_gateway.ductile.settings import EventType
from ductile_gateway.webhooks.settings import FIELDS, EventMapping
from schemas import keys, subjects
from schemas.catalog import ToolOffer
from schemas.events import RESERVED_KEYS, ToolOutput, ToolResult, envelope_of
from schemas.fields import validation_flaws
from schemas.markdown_form import is_form
from schemas.values import dataclass, replace

FindOffer = Callable[[str], ToolOffer | None]


class RequestRefused(Exception):
    """The request can never be accepted."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


MAX_EVENT_BYTES = 512 * 1024
LONGEST_ID = 128
CORRELATION = ("run_id", "step", "tool", "attempt", "capability", "task", "round")
_TEMPLATES = {"goal", "message", "reason"}
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_SLOT = re.compile(r"\{(/[^{}]*)\}")
_ID = re.compile(r"[A-Za-z0-9._:-]+")
_Name = Annotated[str, StringConstraints(strip_whitespace=True)]


@dataclass(frozen=True, slots=True)
class Origin:
    """`untrusted`: of a webhook, whose content anybody may have written. A start of a Ductile with the key
    `agentic:start:<id>` (RFC-103) gets that id as its wake id, without its source. `traceparent`: as sent, unchecked.
    """

    source: str
    type: str
    event_id: str
    at: datetime
    untrusted: bool = False
    traceparent: str | None = None

    @property
    def wake_id(self) -> str:
        external = self.event_id.removeprefix(keys.start(""))
        if not self.untrusted and external != self.event_id:
            return token(external)
        return self.id

    @property
    def id(self) -> str:
        return token(f"{self.source}:{self.event_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """`key`: the Msg-Id. `about`: the run id, or the wake id of a start. `artifacts`: stored before the message."""

    subject: str
    body: bytes
    key: str
    about: str
    origin: Origin
    artifacts: tuple[ProducedArtifact, ...] = ()


class _RelayPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Event(_RelayPart):
    type: EventType
    payload: dict[str, JsonValue] | None = None
    dedupe_key: _Name | None = None


class _RelayOrigin(_RelayPart):
    instance: _Name | None = None
    job_id: _Name | None = None
    event_id: _Name | None = None


class RelayedEvent(_RelayPart):
    event: _Event
    origin: _RelayOrigin | None = None
    baggage: dict[str, JsonValue] | None = None

    @property
    def id(self) -> str:
        """The sender's id; empty if it has none."""
        sent = self.origin or _RelayOrigin()
        return self.event.dedupe_key or (f"{sent.job_id or ''}:{sent.event_id}" if sent.event_id else "")


def read_relayed(document: JsonValue) -> RelayedEvent:
    try:
        return RelayedEvent.model_validate(document)
    except ValidationError as error:
        raise RequestRefused(400, f"no event of a relay: {validation_flaws(error)}") from None


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
    """Replaces each `{/pointer}` by its value: text as it is, other values as JSON."""

    def text(slot: re.Match[str]) -> str:
        value = find(document, slot[1])
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    return _SLOT.sub(text, template)


def of_document(mapping: EventMapping, document: JsonValue, origin: Origin, find_offer: FindOffer) -> Outgoing:
    """Raises RequestRefused."""
    return _message(mapping.to, _payload(mapping, document, origin), origin, find_offer)


def of_relayed(relayed: RelayedEvent, mapping: EventMapping | None, origin: Origin, find_offer: FindOffer) -> Outgoing:
    """Maps by type, else by a mapping of `{"type", "payload", "baggage"}`, else by baggage. Raises RequestRefused."""
    kind, payload, baggage = relayed.event.type, relayed.event.payload or {}, relayed.baggage or {}
    if kind == subjects.START:
        return _message(subjects.START, _start(payload), origin, find_offer)
    if kind == subjects.TOOL_RESULT:
        brought = {name: baggage[name] for name in ("capability",) if name in baggage}
        return _message(subjects.TOOL_RESULT, _result({**payload, **brought}, origin), origin, find_offer)
    if mapping is not None:
        return of_document(mapping, {"type": kind, "payload": payload, "baggage": baggage}, origin, find_offer)
    if not {"run_id", "step", "tool"} <= baggage.keys():
        raise RequestRefused(422, "event type is not mapped, and its baggage names no run, step and tool")
    task, number = _sub_request(baggage)
    result: dict[str, JsonValue] = {name: baggage[name] for name in CORRELATION[:5] if name in baggage}
    result |= {"status": "ok", "result": payload, "task": task, "round": number}
    result["untrusted"] = payload.get("untrusted") in (True, "true")
    return _message(subjects.TOOL_RESULT, _result(result, origin), origin, find_offer)


def _payload(mapping: EventMapping, document: JsonValue, origin: Origin) -> dict[str, JsonValue]:
    fields = dict(_fields_of(mapping, document))
    has_content = bool(mapping.context) or _SLOT.search(mapping.goal or mapping.message or "") is not None
    taint: dict[str, JsonValue] = {"untrusted": origin.untrusted and has_content and not mapping.trusted}
    match mapping.to:
        case subjects.START:
            return _start(fields) | taint
        case subjects.TOOL_RESULT:
            return _result(fields, origin)
        case subjects.SIGNAL:
            if missing := next((name for name, value in fields.items() if value is None), None):
                raise RequestRefused(422, f"the event has nothing at {getattr(mapping, missing)}")
            return fields | taint | {"kind": mapping.kind, "signal_id": origin.id}
    return fields


def _fields_of(mapping: EventMapping, document: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    fields = set[str]().union(*FIELDS[mapping.to]) - {"kind", "trusted", "status"}
    pointers = {name: pointer for name, pointer in mapping if name in fields}
    if mapping.to == subjects.TOOL_RESULT:
        status = find(document, mapping.status) if mapping.status is not None else "ok"
        del pointers["result" if status == "error" else "error"]
        yield "status", status
    for name, pointer in pointers.items():
        if isinstance(pointer, dict):
            yield from [(name, {key: find(document, one) for key, one in pointer.items()})] if pointer else []
        elif pointer is not None:
            yield name, fill(pointer, document) if name in _TEMPLATES else find(document, pointer)


def _start(payload: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    start = {name: payload[name] for name in ("goal", "context", "constraints", "untrusted") if name in payload}
    context = start.get("context")
    return start | ({"context": _without_correlation(context)} if isinstance(context, dict) else {})


def _sub_request(baggage: Mapping[str, JsonValue]) -> tuple[str | None, int | None]:
    call_id, run_id, step, tool = (baggage.get(name) for name in (CALL_ID, "run_id", "step", "tool"))
    if isinstance(call_id, str) and isinstance(step, int):
        return keys.task_of_call(call_id, str(run_id), step, str(tool)) or (None, None)
    return None, None


def _result(payload: Mapping[str, JsonValue], origin: Origin) -> dict[str, JsonValue]:
    fields = (*CORRELATION, "status", "error", "completed_at", "untrusted")
    result: dict[str, JsonValue] = {"completed_at": origin.at.isoformat()}
    result |= {name: payload[name] for name in fields if name in payload}
    if "error" in result:
        result["error"] = _error(result["error"])
    return result | {"result": _output(payload.get("result"))}


def _error(error: JsonValue) -> JsonValue:
    fields: JsonValue = {"message": error} if isinstance(error, str) else error
    if isinstance(fields, dict) and isinstance(message := fields.get("message"), str):
        return fields | {"message": clipped(message, MAX_MESSAGE_BYTES)}
    return fields


def _output(result: JsonValue) -> JsonValue:
    if isinstance(result, dict):
        return _without_correlation(result)
    return None if result is None else {"summary" if isinstance(result, str) else "output": result}


def _without_correlation(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in fields.items() if name not in RESERVED_KEYS}


def _message(subject: str, payload: Mapping[str, JsonValue], origin: Origin, find_offer: FindOffer) -> Outgoing:
    try:
        message = envelope_of(subject).model_validate({"type": subject, "payload": payload})
    except ValidationError as error:
        raise RequestRefused(422, f"no valid {subject} comes of it: {validation_flaws(error)}") from None
    content, artifacts = message.payload, tuple[ProducedArtifact, ...]()
    about = origin.wake_id if subject == subjects.START else content.run_id
    if isinstance(content, ToolResult):
        tainted = content.model_copy(update={"untrusted": origin.untrusted or content.untrusted})
        content, artifacts = shortened(with_form(tainted, find_offer))
        task = content.task if content.round else None  # without its round it has no key of its own
        key = keys.result(content.run_id, content.step, content.attempt or 1, task, content.round)
    else:
        content = content.model_copy(update={"by": origin.source})
        key = keys.dedupe_key(subject, about, external_id=about, signal_id=origin.id)
    body = message.model_copy(update={"dedupe_key": key, "payload": content}).body()
    if len(body) > MAX_EVENT_BYTES:
        raise RequestRefused(413, f"the event would have more than {MAX_EVENT_BYTES} bytes")
    return Outgoing(subject=subject, body=body, key=key, about=about, origin=origin, artifacts=artifacts)


_TEXTS = ("summary", "result")
"""Fields with a plugin's text: its own, and the one that Ductile fills in behind a pipeline's step."""
MAX_INLINE_BYTES = 16 * 1024
"""Results stay in the journal and in every later prompt."""
LONGEST_TOOL = 48


def with_form(result: ToolResult, find_offer: FindOffer) -> ToolResult:
    """A result `ok` as its continuation says, or else its markdown form, if that is in the tool's own name."""
    offer = find_offer(result.tool)
    if offer is None or result.status != "ok" or result.untrusted or not reads_form(offer):
        return result
    fields = _fields(result)
    text = next((value for name in _TEXTS if isinstance(value := fields.get(name), str)), "")
    if fields.get("continuation") is not None:
        output = ToolOutput.model_validate(fields | {"summary": text})
        return result.model_copy(update={"status": "continuation", "result": output})
    if not is_form(text):
        return result
    read = from_form(ToolOutcome("ok", text=text), (offer.name, offer.route), strangers=True)
    if read.continuation:
        asks = {"summary": read.text, "continuation": continuation_fields(read.continuation)}
        output = ToolOutput.model_validate(fields | asks)
        return result.model_copy(update={"status": "continuation", "result": output})
    return result if read.status == "ok" else result.model_copy(update=ending(read, result.completed_at))


def shortened(result: ToolResult) -> tuple[ToolResult, tuple[ProducedArtifact, ...]]:
    """Moves a large result into artifacts, which are returned beside it. A continuation stays whole."""
    if result.result is None or len(result.result.model_dump_json(exclude_none=True).encode()) <= MAX_INLINE_BYTES:
        return result, ()
    fields = _fields(result)
    whole = {"continuation": fields.pop("continuation")} if "continuation" in fields else {}
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    longest = max(texts, key=lambda name: len(texts[name]), default="")
    rest = {name: value for name, value in fields.items() if name != longest}
    outcome = fit_for_event(ToolOutcome("ok", text=texts.get(longest, ""), output=rest))
    of_step = f"{result.tool[:LONGEST_TOOL]}-{result.step:02d}-relayed"
    kept = tuple(
        replace(one, name=f"{of_step}-{one.sha256[:16]}{SUFFIXES[media_type(one)]}") for one in outcome.artifacts
    )
    output = output_of(replace(outcome, artifacts=kept))
    return result.model_copy(update={"result": output.model_copy(update=whole)}), kept


def _fields(result: ToolResult) -> dict[str, JsonValue]:
    return result.result.as_json() if result.result else {}
