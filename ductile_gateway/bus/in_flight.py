"""The records of calls under way, one per tool, which all gateways of a bus have in common: values of a bucket."""

import json
from collections.abc import Callable

from nats.aio.msg import Msg
from pydantic import TypeAdapter, ValidationError

from ductile_gateway.bus.ownership import Members
from ductile_gateway.calls.shared_places import Record, Share, SharedPlaces, Shares
from groundwork.nats.asking import newest, replaced
from groundwork.nats.link import NatsLink
from groundwork.service.machine import monotonic
from schemas import subjects

BUCKET = subjects.LEASE_BUCKET
A_STRANGER_FOR_S = 5.0
"""Of whom nothing was heard for so long, and who has places, has left without a word. A newcomer is known by then."""

_Stored = TypeAdapter(dict[str, tuple[int, int, int]], config={"defer_build": True})


class NatsRecords:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def look(self, tool: str) -> Record:
        found = await newest(self._link, BUCKET, _key(tool))
        try:
            stored = _Stored.validate_json(found.body or b"{}")
        except ValidationError:  # whoever wrote that, nobody has a place by it
            stored = {}
        return Record({name: Share(*share) for name, share in stored.items()}, found.seq)

    async def swap(self, tool: str, shares: Shares, after: int) -> int | None:
        body = json.dumps({name: (share.has, share.needs, share.turn) for name, share in shares.items()}).encode()
        return await replaced(self._link, BUCKET, _key(tool), body, after=after)


async def hear(link: NatsLink, places: SharedPlaces) -> None:
    before = _subject("")

    async def heard(message: Msg) -> None:
        places.heard(message.subject.removeprefix(before))

    await link.subscribe(_subject("*"), heard)


class Absent:
    """Who has no places any more: nobody of the `members`, and said to be gone, or a stranger for a while."""

    def __init__(self, members: Members, clock: Callable[[], float] = monotonic) -> None:
        self._members = members
        self._clock = clock
        self._strange_since: dict[str, float] = {}

    def gone(self, name: str) -> None:
        self._strange_since[name] = float("-inf")

    def is_gone(self, name: str) -> bool:
        if name in self._members.live:
            self._strange_since.pop(name, None)
            return False
        now = self._clock()
        return now - self._strange_since.setdefault(name, now) > A_STRANGER_FOR_S


def _key(tool: str) -> str:
    return f"{subjects.IN_FLIGHT}.{tool}"


def _subject(tool: str) -> str:
    return f"$KV.{BUCKET}.{_key(tool)}"
