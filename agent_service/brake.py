"""The brake: whether everything stands still, or this process alone. Asked before every turn that begins, model call
and tool request.

What is under way is not broken off: its result is recorded, and what would follow from it is left in the outbox.
"""

from agent_service.errors import Stopped
from schemas.halt import Halt

LOOK_AGAIN_S = 5.0
"""After which a start of the bus is looked at again."""


class Brake:
    """Free until `halt` is set to one that is not over. Whoever sets it makes it durable first (see halting).

    `leaving`: why nothing begins in this process alone, which is about to end (see draining).
    """

    def __init__(self) -> None:
        self.halt: Halt | None = None
        self.leaving = ""

    @property
    def why(self) -> str:
        """By whom and since when everything stands still; empty while all goes on."""
        return str(self.halt) if self.halt and not self.halt.over else ""

    @property
    def holds(self) -> str:
        """Why nothing begins here; empty while it does."""
        return self.why or self.leaving

    def check(self) -> None:
        """Raises Stopped while nothing begins here."""
        if why := self.holds:
            raise Stopped(why, LOOK_AGAIN_S)
