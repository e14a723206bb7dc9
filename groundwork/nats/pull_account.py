"""How many messages to ask for, and when to doubt that they come. Times are handed in.

A pull asks for n messages and lives until they came or a status ended it. All pulls of one generation share a reply
subject; a new generation starts when the old ones can no longer be trusted, and then only their messages still count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

HEARTBEAT_SECONDS = 1.0
EXPIRES_SECONDS = 5.0
"""Half of how long a bus belongs to a process that is stopped: it is given nothing any more when another begins."""
SILENCE_SECONDS = 2.5 * HEARTBEAT_SECONDS

_HEARTBEAT = "100"
_USUAL_ENDS = {"404", "408"}  # nothing there, time over


@dataclass(slots=True)
class PullAccount:
    """`want`: asked for and not yet received. `last`: monotonic time of the last sign of life, in seconds."""

    slots: int
    last: float
    want: int = 0
    generation: int = 1
    trouble: str = ""

    def to_ask(self, busy: int) -> int:
        """How many to ask for now, when `busy` slots are taken; 0 while enough are on their way."""
        free = self.slots - busy - self.want
        return free if free > 0 and self.want <= self.slots // 2 else 0

    def asked(self, number: int, now: float) -> None:
        if self.want == 0:  # nothing was due before
            self.last = now
        self.want += number

    def arrived(self, now: float) -> None:
        self.last = now
        self.trouble = ""
        self.want = max(0, self.want - 1)

    def heard(self, generation: int, status: Mapping[str, str], now: float) -> None:
        """What the server said about a pull: a heartbeat, or that the pull ended and how many it still lacked."""
        self.last = now
        code = status.get("Status", "")
        if code == _HEARTBEAT:
            self.trouble = ""
        elif generation == self.generation:
            lacking = status.get("Nats-Pending-Messages")
            self.want = max(0, self.want - int(lacking)) if lacking else 0
            usual = code in _USUAL_ENDS
            self.trouble = "" if usual else f"{code} {status.get('Description', '')}".strip()

    def silent(self, now: float) -> bool:
        """True when something should have come by now, if only a heartbeat."""
        return self.want > 0 and now - self.last > SILENCE_SECONDS

    def start_over(self, now: float) -> None:
        self.generation += 1
        self.want = 0
        self.last = now
