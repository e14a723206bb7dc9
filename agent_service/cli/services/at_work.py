"""Whether any agent works on a bus, for commands that must be alone there."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from agent_service.bus.topology import ROLE
from groundwork.nats.leases.lease import Record, look, look_at_all
from groundwork.nats.link import NatsLink
from groundwork.service import json_log
from groundwork.service.errors import Misconfigured

T = TypeVar("T")


def awaited(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def log_only_what_is_not_said() -> None:
    json_log.set_up("ERROR", "text", redact=tuple)


LOOK_S = 0.2


async def nobody_at_work(link: NatsLink, *, but: str = "") -> None:
    """Raises Misconfigured where an agent other than that of store `but` renews its lease; dead ones must lapse."""
    seen: dict[str, int] = {}
    while living := await _not_free(link, but):
        renewed = [record.owner for record in living if seen.setdefault(record.owner.holder, record.seq) != record.seq]
        if renewed:
            told = "; ".join(map(str, renewed))
            raise Misconfigured(f"agents are at work: {told}. Stop them all (`agentic drain`), then run this again")
        await asyncio.sleep(LOOK_S)


async def _not_free(link: NatsLink, but: str) -> list[Record]:
    records = [await look(link, ROLE), *await look_at_all(link, ROLE)]
    return [record for record in records if record and not record.free and record.owner.holder != but]
