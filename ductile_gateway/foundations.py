"""What the gateway stands on: the bus, its own; its database, for this process alone; and what carries out calls, which
are plugin processes, Ductiles, or an echo inside this process.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from ductile_gateway.bus.ownership import BusOwnership, Permits
from ductile_gateway.bus.prerequisites import ROLE, require
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.runner import Queue, open_ductiles
from ductile_gateway.ductile.starts import ToldOfSent, untold
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.in_process import InProcessTools
from ductile_gateway.plugins.process import plugin_environment
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.ports import ToolRunner
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import ahead
from ductile_gateway.store.moving import AfterRestore, mark_of
from ductile_gateway.store.opening import Stores, open_alone, open_shared
from ductile_gateway.tools.toolbox import Tools
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


NO_QUEUES: Mapping[str, Queue] = {}

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_tools(
    settings: GatewaySettings,
    tools: Tools,
    *,
    stores: Stores,
    folder: Path,
    queues: Mapping[str, Queue] = NO_QUEUES,
    told: ToldOfSent = untold,
) -> AsyncIterator[ToolRunner]:
    """`queues`: by the name of a Ductile, how many jobs it is known to have."""
    if settings.runner == "ductile":
        async with open_ductiles(
            settings.every_ductile(),
            tools.ductiles,
            receipts=stores.receipts,
            overdue=stores.overdue,
            clock=SystemClock(),
            queues=queues,
            told=told,
        ) as runner:
            yield runner
    elif settings.runner == "in_process":
        yield InProcessTools()
    else:
        environment = plugin_environment(os.environ, settings.plugins.environment, python=Path(sys.executable))
        box = box_of(settings.plugins, environment)
        log.info("plugins run in a box", extra={"boundary": box.boundary.told()})
        yield LocalPlugins(tools.plugins, state_dir=folder, environment=environment, box=box)
