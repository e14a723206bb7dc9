"""Parses a message from the bus: strict where the agent has to know, tolerant of added fields."""

import hashlib
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from schemas import keys
from schemas.envelope import MSG_ID, Misshapen, enveloped, expected, object_in
from schemas.events import INBOUND, MAX_MESSAGE_BYTES, Correlation, Envelope, envelope_of
from schemas.fields import flaws_of
from schemas.values import dataclass


class Unreadable(ValueError):
    """A message or a request that can never be taken up; the text says why."""


class UnknownRun(Unreadable):
    """It may be too early, or for an agent with another store."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"there is no run {run_id} here: if another store has it, serve the agent with that one and send this again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """`place`: stream sequence and stored instant, which is `at` too; null for what the stream did not keep."""

    subject: str
    body: bytes
    place: str
    headers: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None

    @property
    def repeated(self) -> str:
        msg_id = self.headers.get(MSG_ID)
        return hashlib.sha256(f"{msg_id}\n".encode() + self.body).hexdigest()[:40] if msg_id else ""


def read(arrival: Arrival) -> Envelope[Any]:
    """Raises Unreadable."""
    if len(arrival.body) > MAX_MESSAGE_BYTES:
        raise Unreadable(f"a message of {len(arrival.body)} bytes: at most {MAX_MESSAGE_BYTES} are taken")
    if arrival.subject not in INBOUND:
        raise Unreadable(f"subject {arrival.subject} carries nothing that the agent takes")
    try:
        body = enveloped(arrival.subject, arrival.body, arrival.headers)
        envelope = envelope_of(arrival.subject).model_validate_json(body)
    except ValidationError as error:
        raise Unreadable(_explained(arrival.subject, flaws_of(error))) from error
    except Misshapen as error:
        raise Unreadable(_explained(arrival.subject, str(error))) from error
    if envelope.type != arrival.subject:
        raise Unreadable(_explained(arrival.subject, f"a message of another type came on subject {arrival.subject}"))
    return envelope


def correlation(arrival: Arrival) -> Correlation | None:
    """Of a result that cannot be read as a whole; a missing or unreadable sub-request comes from its key."""
    try:
        found = object_in(enveloped(arrival.subject, arrival.body, arrival.headers)) or {}
        said = found.get("payload")
        try:
            about = Correlation.model_validate(said)
        except ValidationError:
            return _by_its_key(said, found.get("dedupe_key"))
        return about if about.task or about.round else _by_its_key(said, found.get("dedupe_key")) or about
    except (Misshapen, ValidationError):
        return None


def _by_its_key(said: object, key: object) -> Correlation | None:
    """Raises ValidationError."""
    if not isinstance(said, dict) or not isinstance(key, str):
        return None
    about = Correlation.model_validate({name: told for name, told in said.items() if name not in ("task", "round")})
    task, asked_in = keys.answers(key, about.run_id, about.step) or (None, None)
    return Correlation.model_validate(about.model_dump() | {"task": task, "round": asked_in}) if task else None


def _explained(subject: str, flaws: str) -> str:
    return f"not a valid {subject}: {flaws}; {expected(subject)}"
