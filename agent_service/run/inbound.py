"""Inbound messages; the current one is a lease on its work.

Agents that share a store name the delivery in each entry. A redelivery means that an earlier delivery did not finish:
its agent died or postponed the work. The agent that receives it performs the effects of those entries. An entry without
a message (an accepted wake, a signal by HTTP) is named as a turn of its own, which is queued.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import field
from datetime import datetime

from groundwork.service.errors import GiveUp
from schemas import subjects
from schemas.envelope import MSG_ID
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


def turn_id(run_id: str, seq: int) -> str:
    return f"{run_id}:{seq}"
