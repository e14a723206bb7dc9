"""Noticing that the bus may have forgotten: it was away, or its stream is another one than before, or was emptied.

What it is not: saying anything again, which is for who knows what was said.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from groundwork.nats.errors import TryAgain
from groundwork.nats.link import NatsLink

LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Sight:
    """The stream as it was seen, and over which connection."""

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


async def keep_informed(link: NatsLink, stream: str, inform: Callable[[], Awaitable[bool]]) -> None:
    """Call `inform` now, and whenever the bus may have forgotten, until it returns True. For ever."""
    before: Sight | None = None
    while True:
        now = await _look(link, stream)
        if now and (before is None or now.may_have_forgotten(before)):
            before = now if await inform() else None
        else:
            before = now or before
        await asyncio.sleep(LOOK_S)


async def _look(link: NatsLink, stream: str) -> Sight | None:
    """None while nothing can be seen."""
    if not link.connected:
        return None
    reconnects = link.reconnects
    try:
        info = json.loads(await link.request(f"$JS.API.STREAM.INFO.{stream}", b""))
        created, state = datetime.fromisoformat(info["created"]), info["state"]
        return Sight(reconnects, created, state["first_seq"], state["last_seq"])
    except (TryAgain, ValueError, KeyError):  # there is no such stream now, or no answer
        return None
