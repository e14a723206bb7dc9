"""Whether gateways are at work, for commands that none may be at work beside."""

from ductile_gateway.bus.prerequisites import ROLE
from groundwork.nats.lease_record import look, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Misconfigured


async def nobody_at_work(link: NatsLink, *, but: str = "") -> None:
    """Raises Misconfigured where a gateway lives, other than the one with the store `but`; and TryAgain."""
    records = [await look(link, ROLE), *await look_at_all(link, ROLE)]
    living = [record.owner for record in records if record and not record.free and record.owner.holder != but]
    if living:
        raise Misconfigured(
            f"gateways are at work: {'; '.join(map(str, living))}. Stop them all, then run this again; what died "
            "without a word is taken for alive until its lease has lapsed"
        )
