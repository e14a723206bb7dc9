"""How large the streams are made where nobody said it: as large as usual, and smaller where the server has less room.

The server sets the room of a stream aside when it is made, and tells a login only what its account may have of it. What
it has itself shows when it refuses; so what was made until then is made smaller, and the rest is tried again. Servers
of a cluster tell each other at once how much room they have, and seconds later how much of it is taken: streams made
meanwhile get more than there is. So one as large as all of them is tried there first.
"""

import json
from collections.abc import Callable, Collection, Iterator

from nats.js.api import StreamConfig

from agent_service.bus.streams import GIB
from agent_service.bus.topology import LEAST_GIB, MAX_GIB
from groundwork.nats.completing import set_up
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import Deviation, Topology, asked, change_settings, check_topology, found_stream
from groundwork.service.errors import Failure, NoRoom
from schemas import subjects

STEP = 0.5
LEFT_TO_OTHERS = 0.2


async def offered_gib(link: NatsLink, reserved: Callable[[float], float], replicas: int) -> float:
    """The largest usual size for which the account has room; MAX_GIB where it has no limit, or does not tell it.
    `reserved`: what a size sets aside in all, in GiB."""
    try:
        account = json.loads(await link.request("$JS.API.INFO", b""))
    except (Failure, ValueError):
        return MAX_GIB
    tier = account.get("tiers", {}).get(f"R{replicas}")
    granted = tier or account
    most = granted.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        return MAX_GIB
    taken = max(granted.get("storage", 0), granted.get("reserved_storage", 0))
    room = (most - taken) * (1 - LEFT_TO_OTHERS) / (1 if tier else replicas) / GIB
    return next((gib for gib in sizes() if reserved(gib) <= room), LEAST_GIB)


def sizes() -> Iterator[float]:
    gib = MAX_GIB
    while gib >= LEAST_GIB:
        yield gib
        gib *= STEP


async def set_up_within(
    link: NatsLink, gib: float, wanted: Callable[[float], Topology]
) -> tuple[list[Deviation], float]:
    """Make all of it, of `gib` or of the next smaller size for which there is room. The findings, and that size.
    Raises NoRoom where there is none even for the smallest, and as `set_up`."""
    gib = await _fits_in_one(link, gib, wanted)
    missing = {one.what for one in await check_topology(link, wanted(gib)) if one.kind == "missing"}
    while True:
        try:
            done = await set_up(link, wanted(gib))
        except NoRoom:
            if gib * STEP < LEAST_GIB:
                raise
            gib *= STEP
            await _made_smaller(link, wanted(gib), missing)
        else:
            told = {one.what for one in done if one.kind == "created"}
            before = [Deviation("created", what) for what in sorted(missing - told)]
            return [*before, *done], gib


async def _fits_in_one(link: NatsLink, gib: float, wanted: Callable[[float], Topology]) -> float:
    while gib * STEP >= LEAST_GIB:
        streams = wanted(gib).all_streams()
        tried = next(stream for stream in streams if stream.name == subjects.STREAM_PROGRESS)
        if tried.settings["num_replicas"] == 1 or await found_stream(link, tried):
            return gib
        whole = dict(tried.settings) | {"max_bytes": sum(stream.settings["max_bytes"] for stream in streams)}
        try:
            await asked(link, tried.what, link.jetstream.add_stream(StreamConfig(name=tried.name, **whole)))
        except NoRoom:
            gib *= STEP
        else:
            await asked(link, tried.what, link.jetstream.delete_stream(tried.name))
            return gib
    return gib


async def _made_smaller(link: NatsLink, wanted: Topology, ours: Collection[str]) -> None:
    for stream in wanted.all_streams():
        found = await found_stream(link, stream) if stream.what in ours else None
        if found is None:
            continue
        try:
            await change_settings(link, stream, ["max_bytes"])
        except NoRoom:
            if found.state.messages:
                raise
            await asked(link, stream.what, link.jetstream.delete_stream(stream.name))
