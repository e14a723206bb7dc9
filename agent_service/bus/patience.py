"""How often a message about a run that is not here is tried again: it may be early, or meant for another store.

A message that waits keeps its place in the consumer, so that only a few may: what comes beyond is given up at once.
"""

import time

from groundwork.nats.delivery import Delivery

DELAYS_S = (0.2, 0.4, 0.8, 1.6, 2.0)
MOST = 32
FORGOTTEN_AFTER_S = 60.0


class Patience:
    """Remembers what it has asked to wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, float]] = {}

    def delay(self, delivery: Delivery) -> float | None:
        """In how many seconds to try again; None where it is to be given up."""
        now = time.monotonic()
        self._waiting = {seq: tries for seq, tries in self._waiting.items() if tries[1] > now}
        tried, _ = self._waiting.pop(delivery.stream_seq, (0, now))
        if tried == len(DELAYS_S) or len(self._waiting) >= MOST:
            return None
        self._waiting[delivery.stream_seq] = (tried + 1, now + FORGOTTEN_AFTER_S)
        return DELAYS_S[tried]
