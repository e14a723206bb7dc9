"""What the gateway stands on: the bus, its own; and its database, for this process alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from ductile_gateway.bus.ownership import BusOwnership
from ductile_gateway.bus.permits import Permits
from ductile_gateway.bus.prerequisites import ROLE, require
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import ahead
from ductile_gateway.store.moving import AfterRestore, mark_of
from ductile_gateway.store.opening import Stores, open_alone, open_shared
from groundwork.service import foundations
from groundwork.service.foundations import Claim, Ground
from groundwork.service.store_folder import HAND_OVER_S, store_id
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.group_commit import OnCommit
from schemas import subjects
from schemas.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundations:
    """`me`, `permits`: of one of several gateways; else empty and None."""

    ground: Ground
    ownership: BusOwnership
    stores: Stores
    me: str = ""
    permits: Permits | None = None

    @property
    def store(self) -> SqliteFile:
        """The gateway's database, or its copy of what several share."""
        return self.stores.rows.carrier.file


@asynccontextmanager
async def laid(settings: GatewaySettings, *, take_over: bool, on_commit: OnCommit) -> AsyncIterator[Foundations]:
    laying = _together(settings, on_commit) if settings.shared else _alone(settings, on_commit, take_over=take_over)
    async with laying as found:
        yield found


@asynccontextmanager
async def _alone(settings: GatewaySettings, on_commit: OnCommit, *, take_over: bool) -> AsyncIterator[Foundations]:
    await asyncio.to_thread(ahead, settings.store)  # refused before anybody is made to end for it
    claim = _claim(settings, take_over=take_over)
    opening = open_alone(settings.store, run_bytes=settings.run_mb << 20, on_commit=on_commit)
    async with foundations.laid(claim) as ground, opening as stores:
        ownership = BusOwnership(ground.lease, ground.predecessor, restored=await _restored(stores))
        yield Foundations(ground=ground, ownership=ownership, stores=stores)


@asynccontextmanager
async def _together(settings: GatewaySettings, on_commit: OnCommit) -> AsyncIterator[Foundations]:
    async with foundations.shared(_claim(settings, take_over=False)) as ground:
        link, me, most = ground.link, store_id(ground.folder), settings.run_mb << 20
        async with open_shared(ground.folder, link, me, run_bytes=most, on_commit=on_commit) as stores:
            ownership = BusOwnership(ground.lease, link=link, me=me, restored=await _restored(stores))
            yield Foundations(ground=ground, ownership=ownership, stores=stores, me=me, permits=Permits(link, me))


async def _restored(stores: Stores) -> AfterRestore | None:
    mark = await mark_of(stores.rows)
    return AfterRestore(mark, stores.rows.carrier.file) if mark.backup else None


def _claim(settings: GatewaySettings, *, take_over: bool) -> Claim:
    return Claim(
        name=subjects.SERVICE_GATEWAY,
        role=ROLE,
        nats=settings.nats,
        store=settings.private_folder(),
        lease_s=settings.lease_s,
        check=partial(require, shared=settings.shared),
        take_over=take_over,
        hand_over_s=HAND_OVER_S + settings.grace_s,
    )
