"""The message that a task works on. Until it is acknowledged it is the lease on what the task has begun.

Where several agents share a store, an entry names the delivery under which it was committed. When a message is
delivered again, an earlier delivery did not finish: its agent died, or put the work off. The agent that gets it does
what the entries of earlier deliveries ask for. An entry without a message (an accepted wake, a word by HTTP) is named
as a turn of its own, which is queued then.
"""

from contextvars import ContextVar
from typing import Self

from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`name`: the same at each delivery. `delivered`: how often, from 1. `turn`: of a queued turn, what it is for."""

    name: str
    delivered: int = 1
    turn: str = ""

    @classmethod
    def of_turn(cls, turn: str, place: str, delivered: int) -> Self:
        return cls(name=f"{turn}/{place}", delivered=delivered, turn=turn)

    @property
    def may_have_begun(self) -> bool:
        """Whether there may be entries of an earlier delivery, or the entry that the turn was queued for."""
        return self.delivered > 1 or bool(self.turn)

    @property
    def prefix(self) -> str:
        """Of what names its deliveries."""
        return f"{self.name}#"

    def has(self, by: str) -> bool:
        """Whether what was committed under `by` is this message's, or has no owner."""
        return by.startswith(self.prefix) or by in ("", self.turn)

    def __str__(self) -> str:
        return f"{self.prefix}{self.delivered}"


IN_HAND: ContextVar[Message | None] = ContextVar("in_hand", default=None)


def own_turn(run_id: str, seq: int) -> str:
    return f"{run_id}:{seq}"
