"""Where a message of a run is on the bus, and which consumers it concerns. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent_service.telling.plain import instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A consumer that a message is for. `stands`: it was not delivered yet, is in hand, or was dealt with.

    `before` counts the messages that are delivered before this one; `in_hand`, `redelivered` and `fetches` are of the
    consumer as a whole: JetStream does not tell of a single message how often it was delivered.
    """

    consumer: str
    stands: Literal["ahead", "in_hand", "done"]
    before: int
    in_hand: int
    redelivered: int
    fetches: int

    def __str__(self) -> str:
        match self.stands:
            case "ahead":
                fetching = f"{self.fetches} fetches wait for messages" if self.fetches else "nobody fetches from it now"
                return f"consumer {self.consumer} has not delivered it: {self.before} are before it, {fetching}"
            case "done":
                return f"consumer {self.consumer} has dealt with it"
        again = f", {self.redelivered} of them delivered more than once" if self.redelivered else ""
        return f"consumer {self.consumer} has delivered it, with {self.in_hand} in hand{again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """A message in a stream."""

    stream: str
    seq: int
    at: datetime
    holders: tuple[Holder, ...] = ()

    def __str__(self) -> str:
        held = "; ".join(map(str, self.holders)) or "no consumer takes its subject"
        return f"message {self.seq} of {self.stream}, stored {instant(self.at)}; {held}"
