"""What a service stands on: a bus that is its own, or shared, and its store's folder, for this process alone.

The store's lock comes before the lease, for a store may take its own lease over from a dead process. With take-over the
lease comes first: it makes the other process end, and its lock is waited for.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.nats.lease import Lease, LeaseRecord, Owner, Role, hold_lease, read_lease, read_member_leases
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.service import store_folder
from groundwork.service.errors import Failure, Misconfigured
from groundwork.service.store_folder import HAND_OVER_S, AlreadyRunning, claimed, locked, process_lock

CONNECT_WITHIN_S = 5.0
LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """`predecessor`: the owner before, with another store. `folder`: this process's files."""

    link: NatsLink
    lease: Lease
    predecessor: LeaseRecord | None
    folder: Path


@contextlib.asynccontextmanager
async def laid(
    role: Role,
    nats: NatsSettings,
    store: Path,
    check: Callable[[NatsLink], Awaitable[None]],
    *,
    name: str,
    shared: bool,
    take_over: bool,
    lease_s: float,
    hand_over_s: float = HAND_OVER_S,
) -> AsyncIterator[Ground]:
    """`store`: a folder, made if absent; of several that are `shared`, each has one of its own in it. `check` raises
    Misconfigured for an unusable bus. `take_over`: end the owner, and wait `hand_over_s` for what it leaves. Raises
    Failure; and LeaseLost, in an ExceptionGroup."""
    folder, before = store, None
    async with contextlib.AsyncExitStack() as ours:
        try:
            link = await connect(nats, name=name)
        except Failure as error:
            raise type(error)(f"{error}. Start one with `agentic dev`, or set `nats.urls`") from error
        ours.push_async_callback(link.close)
        await check(link)
        with _usable(role, store):
            if shared:
                folder = ours.enter_context(claimed(store))
            elif not take_over:
                await ours.enter_async_context(locked(folder, within_s=0.0))
            owner = Owner.here(folder, ttl_s=lease_s)
        if shared:
            lease = await ours.enter_async_context(joined(link, role, owner))
        else:
            await refuse_members(link, role)
            lease = Lease(link, role, owner)
            before = await ours.enter_async_context(hold_lease(lease, link, take_over=take_over))
            link.exclusive = True
        if take_over and not shared:
            with _usable(role, store):
                await ours.enter_async_context(locked(folder, within_s=hand_over_s))
        is_another = before is not None and before.owner.holder != owner.holder
        yield Ground(link=link, lease=lease, predecessor=before if is_another else None, folder=folder)


@contextlib.contextmanager
def _usable(role: Role, store: Path) -> Iterator[None]:
    try:
        store_folder.closed(store)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"{role.key}.store {store} cannot be used: {error}") from error


async def refuse_members(link: NatsLink, role: Role) -> None:
    """For a process that wants the whole role. Raises Misconfigured where others share it, and TryAgain."""
    for record in await read_member_leases(link, role):
        if not record.free:
            raise Misconfigured(
                f"this bus has {role} whose store is shared: {record.owner}. Stop those, or set "
                f"`{role.key}.store: jetstream` here, too"
            )


@contextlib.asynccontextmanager
async def joined(link: NatsLink, role: Role, owner: Owner) -> AsyncIterator[Lease]:
    """Nothing leaves by `link` without this lease. Raises TryAgain, Misconfigured where a process has the whole role;
    and LeaseLost, in an ExceptionGroup."""
    lease = Lease(link, role.member(owner.holder), owner)
    async with hold_lease(lease, link):
        alone = await read_lease(link, role)
        if alone and not alone.free:
            raise Misconfigured(
                f"this bus has {role} that shares nothing: {alone.owner}. Stop it, and move what it "
                "keeps: docs/OPERATIONS.md, From one agent to several; or stay with it"
            )
        yield lease


@contextlib.contextmanager
def store_at_rest(store: Path) -> Iterator[None]:
    """For a command: no service begins in the folder inside. Raises Misconfigured while one is there."""
    with contextlib.ExitStack() as held:
        try:
            store_folder.closed(store)
            held.enter_context(process_lock(store))
        except (AlreadyRunning, OSError) as error:
            raise Misconfigured(f"{error}. Nothing was changed") from error
        yield


@contextlib.asynccontextmanager
async def bus_at_hand(nats: NatsSettings, name: str) -> AsyncIterator[NatsLink]:
    """For a command of that name."""
    link = await connect(nats, name=name, timeout_s=CONNECT_WITHIN_S)
    try:
        yield link
    finally:
        await link.close()


async def refuse_at_work(link: NatsLink, role: Role, *, stop: str = "") -> None:
    """Raises Misconfigured where a process renews its lease; the leases of dead ones must lapse. `stop`: by which
    command processes of the role are stopped."""
    seen: dict[str, int] = {}
    while living := [
        one for one in [await read_lease(link, role), *await read_member_leases(link, role)] if one and not one.free
    ]:
        if renewed := [one.owner for one in living if seen.setdefault(one.owner.holder, one.seq) != one.seq]:
            told = f"{role.key}s are at work: {'; '.join(map(str, renewed))}"
            raise Misconfigured(f"{told}. Stop them all{stop and f' (`{stop}`)'}, then run this again")
        await asyncio.sleep(LOOK_S)
