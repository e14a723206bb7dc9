"""What leaves is counted as: what had to be sent again, what was there already, ids that others have taken."""

from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Counter, Instruments


class OutgoingMetrics:
    """Of what one link publishes. `retries` and `dedupe` count other things, too."""

    def __init__(self, instruments: Instruments, retries: Counter, dedupe: Counter) -> None:
        self._retries = retries
        self._dedupe = dedupe
        self._taken = instruments.counter(
            "agentic.ids.taken_by_others", "Message ids of ours that somebody else's message had"
        )

    def listen_to(self, link: NatsLink) -> None:
        link.id_was_taken = self._taken.add
        link.was_there = lambda: self._dedupe.add("publish")
        link.tries_again = lambda: self._retries.add("publish", "try_again")
