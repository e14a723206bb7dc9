"""Start of a service: the connection, the lease on its role, and the folder of its store, locked for this process.

The store is locked before the lease is asked for, because a store may take its own lease over from a dead process. With
take-over the lease comes first: it makes the other process end, and its lock is waited for.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from groundwork.nats.lease import Lease, LeaseLost, LeaseRecord, Owner, Role, read_lease, read_member_leases
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings, ServiceSettings
from groundwork.service import store_folder
from groundwork.service.errors import Failure, Misconfigured, TryAgain, causes
from groundwork.service.store_folder import HAND_OVER_S, AlreadyRunning, claim_folder, process_lock, retry_until_free

CONNECT_WITHIN_S = 5.0
LOOK_S = 0.2
JOINS_AFTER_S = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """`predecessor`: the owner before, with another store. `folder`: this process's files."""

    link: NatsLink
    lease: Lease
    predecessor: LeaseRecord | None
    folder: Path


async def keep_serving(serve: Callable[[], Awaitable[None]], *, who: str, shared: bool) -> None:
    """Runs `serve`, and again if a member ended because its record was taken from it, or because the bus did not answer
    as it joined."""
    while True:
        try:
            return await serve()
        except (Failure, BaseExceptionGroup) as ended:
            why = list(causes(ended))
            lost = any(isinstance(cause, LeaseLost) for cause in why)
            if not shared or not all(isinstance(cause, Failure if lost else TryAgain) for cause in why):
                raise
            log.warning("this %s joins again", who, extra={"why": str(why[0])})
            await asyncio.sleep(JOINS_AFTER_S)


@contextlib.asynccontextmanager
async def service_context(
    role: Role,
    settings: ServiceSettings,
    check: Callable[[NatsLink], Awaitable[None]],
    *,
    name: str,
    take_over: bool,
    hand_over_s: float = HAND_OVER_S,
) -> AsyncIterator[ServiceContext]:
    """Creates the private folder if it is absent; processes that share a store have one each in it. `check` raises
    Misconfigured for an unusable bus. `take_over`: end the owner, and wait `hand_over_s` for its lock. Raises Failure;
    and LeaseLost, in an ExceptionGroup."""
    shared, store = settings.shared, settings.private_folder()
    folder = store
    async with contextlib.AsyncExitStack() as stack:
        link = await connect(settings.nats, name=name)
        stack.push_async_callback(link.close)
        await check(link)
        with _usable(role, store):
            if shared:
                folder = stack.enter_context(claim_folder(store))
            elif not take_over:
                stack.enter_context(process_lock(folder))
            owner = Owner.here(folder, ttl_s=settings.lease_s)
        leased = role_lease(link, role, owner, shared=shared, take_over=take_over and not shared)
        lease, before = await stack.enter_async_context(leased)
        link.exclusive = not shared
        if take_over and not shared:
            with _usable(role, store):
                await retry_until_free(lambda: stack.enter_context(process_lock(folder)), within_s=hand_over_s)
        predecessor = before if before and before.owner.holder != owner.holder else None
        yield ServiceContext(link=link, lease=lease, predecessor=predecessor, folder=folder)


@contextlib.contextmanager
def _usable(role: Role, store: Path) -> Iterator[None]:
    try:
        store_folder.restrict_to_owner(store)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"{role.key}.store {store} cannot be used: {error}") from error


@contextlib.asynccontextmanager
async def role_lease(
    link: NatsLink, role: Role, owner: Owner, *, shared: bool, take_over: bool = False
) -> AsyncIterator[tuple[Lease, LeaseRecord | None]]:
    """Publishes nothing by `link` without this lease: of the whole role, or with `shared` of a member. Yields the
    record before, too. Raises TryAgain, and Misconfigured where another has it; and in an ExceptionGroup LeaseLost, and
    Misconfigured where others have the role in the other way."""
    lease = Lease(link, role.member(owner.holder) if shared else role, owner)
    before = await lease.acquire(take_over=take_over)
    link.guard = lease.ensure_held
    try:
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(lease.keep_renewed())
            await _refuse_others(link, role, shared=shared)
            yield lease, before
            renewing.cancel()
    finally:
        await lease.release()


async def _refuse_others(link: NatsLink, role: Role, *, shared: bool) -> None:
    records = [await read_lease(link, role)] if shared else await read_member_leases(link, role)
    others = [one.owner for one in records if one and not one.free]
    if others and shared:
        raise Misconfigured(
            f"this bus has {role} that shares nothing: {others[0]}. Stop it, and move what it "
            "keeps: docs/OPERATIONS.md, From one agent to several; or stay with it"
        )
    if others:
        raise Misconfigured(
            f"this bus has {role} whose store is shared: {others[0]}. Stop those, or set "
            f"`{role.key}.store: jetstream` here, too"
        )


@contextlib.contextmanager
def stopped_store(store: Path) -> Iterator[None]:
    """Locks the store of a stopped service for a command. Raises Misconfigured while the service runs."""
    with contextlib.ExitStack() as held:
        try:
            store_folder.restrict_to_owner(store)
            held.enter_context(process_lock(store))
        except (AlreadyRunning, OSError) as error:
            raise Misconfigured(f"{error}. Nothing was changed") from error
        yield


@contextlib.asynccontextmanager
async def connected(nats: NatsSettings, name: str) -> AsyncIterator[NatsLink]:
    """Connection of a command."""
    link = await connect(nats, name=name, timeout_s=CONNECT_WITHIN_S)
    try:
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def stopped_service(
    settings: ServiceSettings, role: Role, check: Callable[[NatsLink], Awaitable[None]], *, name: str, stop: str = ""
) -> AsyncIterator[NatsLink]:
    """Locks the store of a stopped service, and connects a command to its bus. Raises as `stopped_store` and
    `refuse_running` do, and as `check` for an unusable bus."""
    with stopped_store(settings.private_folder()):
        async with connected(settings.nats, name) as link:
            await check(link)
            await refuse_running(link, role, stop=stop)
            yield link


async def refuse_running(link: NatsLink, role: Role, *, stop: str = "") -> None:
    """Waits until the leases of dead processes lapse. Raises Misconfigured where a process renews its lease. `stop`:
    command that stops the processes of the role."""
    seen: dict[str, int] = {}
    while True:
        records = [await read_lease(link, role), *await read_member_leases(link, role)]
        living = [one for one in records if one and not one.free]
        if not living:
            return
        if renewed := [one.owner for one in living if seen.setdefault(one.owner.holder, one.seq) != one.seq]:
            told = f"{role.key}s are at work: {'; '.join(map(str, renewed))}"
            raise Misconfigured(f"{told}. Stop them all{stop and f' (`{stop}`)'}, then run this again")
        await asyncio.sleep(LOOK_S)
