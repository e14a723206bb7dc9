"""What is told of a message that became a dead letter: `agent.rejected`. Pure.

What it relates to is read leniently from whatever was refused. Only names come out of it (printable ASCII without
blanks, of a limited length), and nothing else of the message is quoted.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas import headers, keys, subjects
from schemas.envelope import Json, object_in
from schemas.events import Envelope, Rejected
from schemas.fields import Count, Id

T = TypeVar("T")

_NAME = re.compile(r"[!-~]{1,512}")
_NUMBERED = re.compile(r"(.+)#([1-9][0-9]{0,5})")
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_RUN_ID: TypeAdapter[str] = TypeAdapter(Id)
_STEP: TypeAdapter[int] = TypeAdapter(Count)


class Refused(Protocol):
    @property
    def subject(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def stream_seq(self) -> int: ...


def rejection(
    refused: Refused, *, stream: str, reason: str, source: str, at: datetime
) -> tuple[Envelope[Rejected], dict[str, str]]:
    """The event that says so, and its headers: in the trace of the message that was refused.

    Raises ValueError for a rejection that was refused itself: to reject that would never end.
    """
    if refused.subject == subjects.REJECTED:
        raise ValueError("of a rejection no rejection is told")
    event = Envelope[Rejected](
        type=subjects.REJECTED,
        payload=_told(refused, reason),
        dedupe_key=keys.rejected(stream, refused.stream_seq),
    )
    return event, _headers(event, refused.headers.get(headers.TRACEPARENT, ""), source=source, at=at)


def next_id(msg_id: str) -> str:
    """The Nats-Msg-Id to use after `msg_id`: `a`, `a#2`, `a#3`, …"""
    numbered = _NUMBERED.fullmatch(msg_id)
    return f"{numbered[1]}#{int(numbered[2]) + 1}" if numbered else f"{msg_id}#2"


def _told(refused: Refused, reason: str) -> Rejected:
    message = object_in(refused.body) or {}
    payload = _payload(message)
    msg_id = _name(refused.headers.get("Nats-Msg-Id"))
    return Rejected(
        subject=refused.subject,
        stream_seq=refused.stream_seq,
        msg_id=msg_id,
        dedupe_key=_name(message.get("dedupe_key")) or _name(payload.get("dedupe_key")),
        run_id=_valid(_RUN_ID, payload.get("run_id")) or _valid(_RUN_ID, refused.headers.get(headers.RUN_ID)),
        step=_valid(_STEP, payload.get("step")),
        reason=reason,
        repeat_as=msg_id and next_id(msg_id),
    )


def _headers(event: Envelope[Rejected], trace: str, *, source: str, at: datetime) -> dict[str, str]:
    instant = f"{at.replace(tzinfo=None).isoformat()}Z"
    described = headers.of_cloud_event(event.type, dedupe_key=event.dedupe_key or "", source=source, at=instant)
    if _TRACEPARENT.fullmatch(trace):
        described[headers.TRACEPARENT] = trace
    return described | ({headers.RUN_ID: event.payload.run_id} if event.payload.run_id else {})


def _payload(message: Json) -> Json:
    return next((message[name] for name in ("payload", "data") if isinstance(message.get(name), dict)), message)


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _valid(kind: TypeAdapter[T], value: object) -> T | None:
    try:
        return kind.validate_python(value)
    except ValidationError:
        return None
