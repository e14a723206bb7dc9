"""What the gateway stands on: the bus, its own; its rows, for this process alone; and what carries out calls, which are
plugin processes, Ductiles, or an echo inside this process.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ductile_gateway.bus.ownership import ROLE, AfterRestore, BusOwnership, Permits, require
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.ductile.jobs import Queue, ToldOfSent
from ductile_gateway.plugins.boxes import box_of
from ductile_gateway.plugins.runner import InProcessTools, LocalPlugins
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import ahead
from ductile_gateway.store.opening import mark_of, open_alone, open_shared
from ductile_gateway.store.rows import Rows
from ductile_gateway.tools.toolbox import Tools
from groundwork.service import foundations
from groundwork.service.foundations import Ground
from groundwork.service.program import loaded
from groundwork.service.store_folder import HAND_OVER_S, store_id
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.group_commit import OnCommit
from schemas import subjects
from schemas.values import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Foundations:
    """`permits`: of one of several gateways; else None."""

    ground: Ground
    rows: Rows
    ownership: BusOwnership
    permits: Permits | None

    @property
    def store(self) -> SqliteFile:
        """The gateway's database, or its copy of what several share."""
        return self.rows.carrier.file


@contextlib.asynccontextmanager
async def laid(settings: GatewaySettings, *, take_over: bool, on_commit: OnCommit) -> AsyncIterator[Foundations]:
    laying = foundations.laid(
        ROLE,
        settings.nats,
        settings.private_folder(),
        partial(require, shared=settings.shared),
        name=subjects.SERVICE_GATEWAY,
        shared=settings.shared,
        take_over=take_over,
        lease_s=settings.lease_s,
        hand_over_s=HAND_OVER_S + settings.grace_s,
    )
    if settings.shared:
        async with laying as ground:
            link, me = ground.link, store_id(ground.folder)
            async with open_shared(ground.folder, link, me, on_commit=on_commit) as rows:
                ownership = BusOwnership(ground.lease, link=link, me=me, restored=await _restored(rows))
                yield Foundations(ground, rows, ownership, Permits(link, me))
        return
    await asyncio.to_thread(ahead, settings.store)  # refused before anybody is made to end for it
    opening = open_alone(settings.store, on_commit=on_commit)
    async with laying as ground, opening as rows:
        ownership = BusOwnership(ground.lease, ground.predecessor, restored=await _restored(rows))
        yield Foundations(ground, rows, ownership, None)


async def _restored(rows: Rows) -> AfterRestore | None:
    mark = await mark_of(rows)
    return AfterRestore(mark, rows) if mark.backup else None


@contextlib.asynccontextmanager
async def open_tools(
    settings: GatewaySettings,
    tools: Tools,
    ledger: Ledger,
    folder: Path,
    *,
    queues: Mapping[str, Queue],
    told: ToldOfSent,
) -> AsyncIterator[Any]:
    """What fills the port ToolRunner. `queues`: by the name of a Ductile, how many jobs it is known to have."""
    if settings.runner == "ductile":
        every = settings.every_ductile()
        open_ductiles = loaded("ductile_gateway.ductile.runner:open_ductiles")  # with all that speaks HTTP
        async with open_ductiles(every, tools.ductiles, ledger, queues=queues, told=told) as runner:
            yield runner
    elif settings.runner == "in_process":
        yield InProcessTools()
    else:
        box = box_of(settings.plugins)
        log.info("plugins run in a box", extra={"boundary": box.boundary.told()})
        yield LocalPlugins(tools.plugins, state_dir=folder, box=box)
