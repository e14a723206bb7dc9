"""What the bus was told of the ends of runs: how far each had come then, by the agent's own word."""

from dataclasses import dataclass

from nats.js.api import ConsumerConfig, DeliverPolicy

from agent_service.anchors import head_heard
from agent_service.bus.reading import headers_of
from groundwork.nats.link import NatsLink
from groundwork.service.key_ring import KeyRing
from schemas import headers, subjects


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEnd:
    """That a run ended, with entry `seq` as its newest, whose hash in hex is `head`."""

    run_id: str
    subject: str
    seq: int
    head: str


async def told_ends(link: NatsLink, ring: KeyRing) -> list[ToldEnd]:
    """Those that the agent has told with a key of the ring; what others say is left out. Raises TryAgain, and
    Misconfigured."""
    everything = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    found = []
    async for message in headers_of(link, subjects.STREAM, f"{subjects.EVENTS}*", everything):
        run_id = message.headers.get(headers.RUN_ID, "")
        heard = head_heard(ring, run_id, message.headers.get(headers.HEAD, ""))
        if heard and message.subject in subjects.ENDINGS:
            found.append(ToldEnd(run_id=run_id, subject=message.subject, seq=heard[0], head=heard[1]))
    return found
