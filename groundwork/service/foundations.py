"""What a service stands on: a bus that is its own, and its store's folder, for this process alone.

The store's lock comes before the lease, for a store may take its own lease over from a dead process. With take-over the
lease comes first: it makes the other process end, and its lock is waited for.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.nats.lease import Lease, Owner, Record, Role, hold, look, look_at_all
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service import store_folder
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.store_folder import HAND_OVER_S, AlreadyRunning, claimed, locked

MISSED_AFTER_S = 4.0
"""One of several is taken for dead that has not renewed its lease for so long, or shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """`predecessor`: the owner before, with another store. `folder`: this process's files. `members`: None for one
    alone."""

    link: NatsLink
    lease: Lease
    predecessor: Record | None
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`role`: on the bus. `store`: a folder, made if absent. `check` raises Misconfigured for an unusable bus.
    `take_over`: end the owner, and wait `hand_over_s` for what it leaves. `missed_after_s`: of one of several."""

    name: str
    role: Role
    nats: NatsSettings
    store: Path
    lease_s: float
    check: Callable[[NatsLink], Awaitable[None]]
    take_over: bool
    hand_over_s: float = HAND_OVER_S
    missed_after_s: float = MISSED_AFTER_S


@contextlib.asynccontextmanager
async def laid(claim: Claim) -> AsyncIterator[Ground]:
    async with contextlib.AsyncExitStack() as ours:
        link = await ours.enter_async_context(_connected(claim))
        await claim.check(link)
        if not claim.take_over:
            await ours.enter_async_context(_locked(claim, within_s=0.0))
        ground = await ours.enter_async_context(_owned(claim, link))
        if claim.take_over:
            await ours.enter_async_context(_locked(claim, within_s=claim.hand_over_s))
        yield ground


@contextlib.asynccontextmanager
async def shared(claim: Claim) -> AsyncIterator[Ground]:
    """As a member of the role, with a folder of its own in `store`. Raises Failure; and Taken, in an ExceptionGroup."""
    async with contextlib.AsyncExitStack() as ours:
        link = await ours.enter_async_context(_connected(claim))
        await claim.check(link)
        with _usable(claim):
            folder = ours.enter_context(claimed(claim.store))
            owner = Owner.here(folder, ttl_s=min(claim.lease_s, claim.missed_after_s))
        lease = await ours.enter_async_context(joined(link, claim.role, owner))
        yield Ground(link=link, lease=lease, predecessor=None, folder=folder)


@contextlib.asynccontextmanager
async def _connected(claim: Claim) -> AsyncIterator[NatsLink]:
    try:
        link = await connect(claim.nats, name=claim.name)
    except Failure as error:
        raise type(error)(f"{error}. Start one with `agentic dev`, or set `nats.urls`") from error
    try:
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def _owned(claim: Claim, link: NatsLink) -> AsyncIterator[Ground]:
    with _usable(claim):
        owner = Owner.here(claim.store, ttl_s=claim.lease_s)
    await refuse_members(link, claim.role)
    lease = Lease(link, claim.role, owner)
    async with hold(lease, link, take_over=claim.take_over) as before:
        link.alone = True
        is_another = before is not None and before.owner.holder != owner.holder
        yield Ground(link=link, lease=lease, predecessor=before if is_another else None, folder=claim.store)


@contextlib.asynccontextmanager
async def _locked(claim: Claim, *, within_s: float) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as held:
        with _usable(claim):
            await held.enter_async_context(locked(claim.store, within_s=within_s))
        yield


@contextlib.contextmanager
def _usable(claim: Claim) -> Iterator[None]:
    try:
        store_folder.closed(claim.store)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"{claim.role.key}.store {claim.store} cannot be used: {error}") from error


async def refuse_members(link: NatsLink, role: Role) -> None:
    """For a process that wants the whole role. Raises Misconfigured where others share it, and TryAgain."""
    for record in await look_at_all(link, role):
        if not record.free:
            raise Misconfigured(
                f"this bus has {role} whose store is shared: {record.owner}. Stop those, or set "
                f"`{role.key}.store: jetstream` here, too"
            )


@contextlib.asynccontextmanager
async def joined(link: NatsLink, role: Role, owner: Owner) -> AsyncIterator[Lease]:
    """Nothing leaves by `link` without this lease. Raises TryAgain, Misconfigured where a process has the whole role;
    and Taken, in an ExceptionGroup."""
    lease = Lease(link, role.of_member(owner.holder), owner)
    async with hold(lease, link):
        alone = await look(link, role)
        if alone and not alone.free:
            raise Misconfigured(
                f"this bus has {role} that shares nothing: {alone.owner}. Stop it, and move what it "
                "keeps: docs/OPERATIONS.md, From one agent to several; or stay with it"
            )
        yield lease
