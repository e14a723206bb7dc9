"""What the gateway stands on: the bus, found as it must be and owned; the store's folder, for this process alone.

The store's lock comes before the lease, because a store may take its own lease over from a process that is dead. Where
the gateway is told to take over it is the other way round: the lease makes the process that has it end, and then what
that one leaves is waited for.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from ductile_gateway.bus.ownership import BusOwnership
from ductile_gateway.bus.prerequisites import require
from ductile_gateway.errors import Misconfigured
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store import open_store
from groundwork.nats.lease import Lease, hold
from groundwork.nats.lease_record import Owner, Record, Role
from groundwork.nats.link import NatsLink, connect
from groundwork.service.hand_over import HAND_OVER_S, locked
from groundwork.service.process_lock import AlreadyRunning
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_GATEWAY, command="ductile-gateway serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundations:
    """`store` is the gateway's database."""

    link: NatsLink
    lease: Lease
    ownership: BusOwnership
    store: SqliteFile


@asynccontextmanager
async def laid(settings: GatewaySettings, *, take_over: bool) -> AsyncIterator[Foundations]:
    """All of them, left again in the reverse order. Raises Misconfigured, Broken, TryAgain or what the bus raises."""
    async with AsyncExitStack() as ours:
        if not take_over:
            await ours.enter_async_context(_locked(settings, within_s=0.0))
        link = await ours.enter_async_context(_connected(settings))
        await require(link)
        lease, ownership = await ours.enter_async_context(_owned(settings, link, take_over=take_over))
        if take_over:
            await ours.enter_async_context(_locked(settings, within_s=HAND_OVER_S + settings.grace_s))
        store = await ours.enter_async_context(open_store(settings.store))
        yield Foundations(link=link, lease=lease, ownership=ownership, store=store)


@asynccontextmanager
async def _connected(settings: GatewaySettings) -> AsyncIterator[NatsLink]:
    link = await connect(settings.nats.settings(subjects.SERVICE_GATEWAY))
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def _owned(
    settings: GatewaySettings, link: NatsLink, *, take_over: bool
) -> AsyncIterator[tuple[Lease, BusOwnership]]:
    """The bus, for this gateway alone."""
    with _usable(settings):
        owner = Owner.here(settings.store, ttl_s=settings.lease_s)
    lease = Lease(link, ROLE, owner)
    async with hold(lease, link, take_over=take_over) as before:
        yield lease, _ownership(lease, before, owner)


def _ownership(lease: Lease, before: Record | None, owner: Owner) -> BusOwnership:
    if before is None or before.owner.holder == owner.holder:
        return BusOwnership(lease)
    return BusOwnership(lease, str(before.owner), before.renewed_at + timedelta(seconds=before.owner.ttl_s))


@asynccontextmanager
async def _locked(settings: GatewaySettings, *, within_s: float) -> AsyncIterator[None]:
    async with AsyncExitStack() as held:
        with _usable(settings):
            await held.enter_async_context(locked(settings.store, within_s=within_s))
        yield


@contextmanager
def _usable(settings: GatewaySettings) -> Iterator[None]:
    """The store's folder, made if absent."""
    try:
        settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"gateway.store {settings.store} cannot be used: {error}") from error
