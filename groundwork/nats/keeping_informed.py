"""Notices that the bus may have forgotten: it was away, or a stream is another one than before, or was emptied."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic

LOOK_S, LOOK_AGAIN_S = 10.0, 0.5
"""How often the streams are asked, and how often after it was away, until they answer and are informed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sight:
    reconnects: int
    created: datetime
    first_seq: int
    last_seq: int

    def may_have_forgotten(self, before: "Sight") -> bool:
        """Whether anything of what was there at `before` may be missing: more than what has grown old since."""
        if (self.reconnects, self.created) != (before.reconnects, before.created) or self.last_seq < before.last_seq:
            return True
        gone_since = self.first_seq > before.last_seq + 1
        had_any = 0 < before.first_seq <= before.last_seq
        return gone_since or (had_any and self.first_seq > before.last_seq)


async def keep_informed(link: NatsLink, streams: Collection[str], inform: Callable[[], Awaitable[None]]) -> None:
    """Call `inform` now, and whenever one of the streams may have forgotten, until it raises no TryAgain. For ever."""
    before: dict[str, Sight] = {}
    told = False
    while True:
        now = {name: sight for name in streams if (sight := await _look(link, name))}
        forgotten = any(sight.may_have_forgotten(before[name]) for name, sight in now.items() if name in before)
        if now and (forgotten or not told):
            told = await _informed(inform)
        before |= now
        await _while_connected(link, LOOK_S if told and len(now) == len(streams) else LOOK_AGAIN_S)


async def _while_connected(link: NatsLink, most_s: float) -> None:
    reconnects, until = link.reconnects, monotonic() + most_s
    while link.reconnects == reconnects and monotonic() < until:  # noqa: ASYNC110 - the client only counts
        await asyncio.sleep(LOOK_AGAIN_S)


async def _informed(inform: Callable[[], Awaitable[None]]) -> bool:
    try:
        await inform()
    except TryAgain as error:
        log.warning("the bus is not informed yet", extra={"why": str(error)})
        return False
    return True


async def _look(link: NatsLink, stream: str) -> Sight | None:
    if not link.connected:
        return None
    reconnects = link.reconnects
    try:
        info = await link.ask_jetstream(f"STREAM.INFO.{stream}")
        created, state = datetime.fromisoformat(info["created"]), info["state"]
        return Sight(reconnects, created, state["first_seq"], state["last_seq"])
    except (Failure, ValueError, KeyError):  # there is no such stream now, or no answer
        return None
