"""The brake: whether everything stands still. Asked before every turn that begins, model call and tool request.

What is under way is not broken off: its result is recorded, and what would follow from it is left in the outbox.
"""

from agent_service.errors import Stopped
from schemas.halt import Halt

LOOK_AGAIN_S = 5.0
"""After which a start of the bus is looked at again."""


class Brake:
    """Free until `halt` is set to one that is not over. Whoever sets it makes it durable first (see halting)."""

    def __init__(self) -> None:
        self.halt: Halt | None = None

    @property
    def why(self) -> str:
        """By whom and since when everything stands still; empty while all goes on."""
        return str(self.halt) if self.halt and not self.halt.over else ""

    def check(self) -> None:
        """Raises Stopped while everything stands still."""
        if why := self.why:
            raise Stopped(why, LOOK_AGAIN_S)
