"""What can go wrong between the gateway and Ductile, each with a switch."""

import threading
from dataclasses import dataclass, field
from typing import Literal

from tests.ductile.fake.wire import Answer


@dataclass(slots=True)
class Faults:
    """Switches that may be turned at any time; they are looked at for every request.

    lost_202: so many of the next POSTs are carried out and then cut off before their answer.
    unavailable_after_enqueueing: so many of the next POSTs are carried out and then answered with 503.
    proxied: what something on the way answers to everything, while Ductile is away behind it.
    strangers: what something on the way answers to the next POSTs, and whether it has let them pass before.
    """

    lost_202: int = 0
    unavailable_after_enqueueing: int = 0
    proxied: Answer | None = None
    strangers: list[tuple[Answer, bool]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def stranger(self) -> tuple[Answer | None, bool]:
        """What something on the way answers to this POST, and whether Ductile gets it."""
        with self._lock:
            return self.strangers.pop(0) if self.strangers else (None, True)

    def take(self, counted: Literal["lost_202", "unavailable_after_enqueueing"]) -> bool:
        """Whether this POST is one of those to go wrong; it is counted then."""
        with self._lock:
            left: int = getattr(self, counted)
            setattr(self, counted, max(0, left - 1))
            return left > 0
