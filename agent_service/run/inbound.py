"""Inbound messages: strict parsing that tolerates added fields, and the current message as a lease on its work.

Agents that share a store name the delivery in each entry. A redelivery means that an earlier delivery did not finish:
its agent died or postponed the work. The agent that receives it performs the effects of those entries. An entry without
a message (an accepted wake, a signal by HTTP) is named as a turn of its own, which is queued.
"""

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from groundwork.service.errors import GiveUp
from schemas import keys, subjects
from schemas.bounded import json_object
from schemas.envelope import MSG_ID, Misshapen, expected_form, to_envelope
from schemas.events import INBOUND, MAX_MESSAGE_BYTES, Correlation, Envelope, envelope_of
from schemas.fields import validation_flaws
from schemas.values import dataclass


class InvalidMessage(GiveUp):
    """The message or request can never be processed; the text says why."""


class UnknownRun(InvalidMessage):
    """The run is unknown: the message came too early, or belongs to an agent with another store."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"there is no run {run_id} here: if another store has it, serve the agent with that one and send this again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """Message in hand. `place`: stream sequence and stored instant. `at`: that instant; None for a message that no
    stream keeps. `consumer`: of the bus. `delivered`: delivery count from 1.
    """

    subject: str
    body: bytes
    place: str
    headers: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None
    consumer: str = ""
    delivered: int = 1

    @property
    def turn(self) -> str:
        """Id of a queued turn."""
        return self.headers.get(MSG_ID, "") if self.subject == subjects.TURN else ""

    @property
    def prefix(self) -> str:
        """Beginning of `str` that is the same for every delivery."""
        return f"{self.turn or self.consumer}/{self.place}#"

    def owns(self, by: str) -> bool:
        """True if `by` names a delivery of this message or its turn, or no owner."""
        return by.startswith(self.prefix) or by in ("", self.turn)

    def __str__(self) -> str:
        return f"{self.prefix}{self.delivered}"


CURRENT_MESSAGE: ContextVar[InboundMessage | None] = ContextVar("in_hand", default=None)


def parse(arrival: InboundMessage) -> Envelope[Any]:
    """Raises InvalidMessage."""
    if len(arrival.body) > MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"a message of {len(arrival.body)} bytes: at most {MAX_MESSAGE_BYTES} are taken")
    if arrival.subject not in INBOUND:
        raise InvalidMessage(f"subject {arrival.subject} carries nothing that the agent takes")
    try:
        body = to_envelope(arrival.subject, arrival.body, arrival.headers)
        envelope = envelope_of(arrival.subject).model_validate_json(body)
    except (ValidationError, Misshapen) as error:
        flaws = validation_flaws(error) if isinstance(error, ValidationError) else str(error)
        raise _invalid(arrival, flaws) from error
    if envelope.type != arrival.subject:
        raise _invalid(arrival, f"a message of another type came on subject {arrival.subject}")
    return envelope


def _invalid(arrival: InboundMessage, flaws: str) -> InvalidMessage:
    return InvalidMessage(f"not a valid {arrival.subject}: {flaws}; {expected_form(arrival.subject)}")


def correlation_of(arrival: InboundMessage) -> tuple[Correlation, str] | None:
    """Correlation of an unreadable result, and its dedupe key, which may name the sub-request that it does not."""
    with suppress(Misshapen, ValidationError):
        found = json_object(to_envelope(arrival.subject, arrival.body, arrival.headers)) or {}
        payload, key = found.get("payload"), str(found.get("dedupe_key") or "")
        with suppress(ValidationError):
            return Correlation.model_validate(payload), key
        if isinstance(payload, dict):  # its sub-request may be what cannot be read
            bare = Correlation.model_validate(payload | {"task": None, "round": None})
            task, _ = keys.task_of_result(key, bare.run_id, bare.step) or (None, None)
            return (bare, key) if task else None
    return None


def turn_id(run_id: str, seq: int) -> str:
    return f"{run_id}:{seq}"
