"""What leaves is counted as: what had to be sent again, what was there already, ids that others have taken."""

from agent_service.metrics.incoming import IncomingMetrics
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Instruments


class OutgoingMetrics:
    """Of what one link publishes. What is done again, and what came again, is counted with what comes in."""

    def __init__(self, instruments: Instruments, incoming: IncomingMetrics) -> None:
        self._retries, self._dedupe = incoming.retries, incoming.dedupe
        self._taken = instruments.counter(
            "agentic.ids.taken_by_others", "Message ids of ours that somebody else's message had"
        )

    def listen_to(self, link: NatsLink) -> None:
        link.id_was_taken = self._taken.add
        link.was_there = lambda: self._dedupe.add("publish")
        link.tries_again = lambda: self._retries.add("publish", "try_again")
