"""The head of a run's journal, as the run's signed ending says it on the bus."""

from collections.abc import Callable

from nats.js.api import ConsumerConfig, DeliverPolicy

from agent_service.bus.reading import headers_of
from groundwork.nats.link import NatsLink
from groundwork.service.keys import KeyRing
from schemas import envelope, subjects
from schemas.values import dataclass

PURPOSE = "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldEnd:
    """A run ended with entry `seq` as its newest, whose hash in hex is `head`."""

    run_id: str
    subject: str
    seq: int
    head: str


def head_told(ring: KeyRing, head_of: Callable[[str], tuple[int, str]], run_id: str) -> str:
    seq, head = head_of(run_id)
    return f"{seq}.{head}.{ring.mac(PURPOSE, run_id, str(seq), head)}"


def head_heard(ring: KeyRing, run_id: str, told: str) -> tuple[int, str] | None:
    """The entry and its hash; None unless a key of the ring made it."""
    seq, _, rest = told.partition(".")
    head, _, mac = rest.partition(".")
    return (int(seq), head) if ring.checks(mac, PURPOSE, run_id, seq, head) else None


async def told_ends(link: NatsLink, ring: KeyRing) -> list[ToldEnd]:
    """Only those that the agent said with a key of the ring. Raises TryAgain, and Misconfigured."""
    everything = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
    found = []
    async for message in headers_of(link, subjects.STREAM, f"{subjects.EVENTS}*", everything):
        run_id = message.headers.get(envelope.RUN_ID, "")
        heard = head_heard(ring, run_id, message.headers.get(envelope.HEAD, ""))
        if heard and message.subject in subjects.ENDINGS:
            found.append(ToldEnd(run_id=run_id, subject=message.subject, seq=heard[0], head=heard[1]))
    return found
