"""A service from start to end: its connection, its lease, the locked folder of its store, its socket, and signals.

The store is locked before the lease is asked for, because a store may take its own lease over from a dead process. With
take-over the lease comes first: it makes the other process end, and its lock is waited for. The listening socket exists
before the HTTP server is imported, so that callers wait instead of failing. systemd is notified when the service is
ready (sd_notify(3)). The reason of an end without a signal is one line of the log.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from groundwork.nats.lease import Lease, LeaseLost, LeaseRecord, Owner, Role, read_lease, read_member_leases
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import ServiceSettings
from groundwork.service import json_log, process, program, store_folder
from groundwork.service.errors import Exit, Failure, Misconfigured, TryAgain, causes, complaint_of
from groundwork.service.store_folder import HAND_OVER_S, AlreadyRunning, claim_folder, process_lock, retry_until_free

CONNECT_WITHIN_S = 10.0
LOOK_S = 0.2
JOINS_AFTER_S = 0.5

log = logging.getLogger(__name__)


def serve(
    settings: ServiceSettings, work: Callable[[], Coroutine[Any, Any, None]], *, aside: Collection[str] = ()
) -> Exit:
    """Runs `work` until SIGTERM or SIGINT. `aside`: fields that the log leaves out of text for people."""
    json_log.set_up(settings.log.level.upper(), settings.log.format, redact=settings.secrets(), aside=aside)
    program.collect_seldom()
    process.hide_memory()
    try:
        uvloop.run(_until_told(work))
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None:
            log.critical("the service failed: report it with this log", exc_info=error)
            return Exit.FAILED
        log.critical("%s", str(complaint))
        return complaint.exit_code
    return Exit.OK


async def _until_told(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(asyncio.CancelledError), cancelled_by_signals(lambda: log.info("stopping"), SERVICE_SIGNALS):
        await work()
    log.info("stopped")


SERVICE_SIGNALS = (signal.SIGTERM, signal.SIGINT)
COMMAND_SIGNALS = (*SERVICE_SIGNALS, signal.SIGHUP)


@contextmanager
def cancelled_by_signals(
    stopping: Callable[[], None], signals: tuple[signal.Signals, ...] = COMMAND_SIGNALS
) -> Iterator[None]:
    """The first signal cancels the current task and calls `stopping`; others are ignored."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked and task is not None:
            asked = True
            task.cancel()
            with suppress(OSError):  # the terminal may be gone
                stopping()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


HEAD_START_S = 0.5


async def let_recovery_start() -> None:
    """Gives recovery the processor for itself before callers are served."""
    await asyncio.sleep(HEAD_START_S)


def notify_ready() -> None:
    """Notifies the supervisor. If it does not listen, only units that wait for this one are delayed."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)


@asynccontextmanager
async def listening(host: str, port: int, *, who: str, within_s: float = 0.0) -> AsyncIterator[socket.socket]:
    """Listening socket. `within_s`: time to wait for a process that still has the address. Raises Misconfigured, which
    names `who` may have it, as in `another agent`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def listen() -> socket.socket:
        return socket.create_server((host, port), family=family, backlog=1024)

    try:
        listener = await retry_until_free(listen, within_s=within_s)
    except OSError as error:
        mend = f"is another {who} running there?" if error.errno == errno.EADDRINUSE else "set another `host` or `port`"
        raise Misconfigured(f"cannot listen on {host}:{port} ({error.strerror}): {mend}") from error
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


@asynccontextmanager
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
    shared, folder = settings.shared, settings.private_folder()
    usable = partial(_usable, f"{role.key}.store {folder} cannot be used", folder)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(connect(settings.nats, name, timeout_s=CONNECT_WITHIN_S))
        await check(link)
        with usable():
            if shared:
                folder = stack.enter_context(claim_folder(folder))
            elif not take_over:
                stack.enter_context(process_lock(folder))
            owner = Owner.here(folder, ttl_s=settings.lease_s)
        leased = role_lease(link, role, owner, shared=shared, take_over=take_over and not shared)
        lease, before = await stack.enter_async_context(leased)
        link.exclusive = not shared
        if take_over and not shared:
            with usable():
                await retry_until_free(lambda: stack.enter_context(process_lock(folder)), within_s=hand_over_s)
        predecessor = before if before and before.owner.holder != owner.holder else None
        yield ServiceContext(link=link, lease=lease, predecessor=predecessor, folder=folder)


@contextmanager
def _usable(or_else: str, store: Path) -> Iterator[None]:
    try:
        store_folder.restrict_to_owner(store)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"{or_else}: {error}") from error


@asynccontextmanager
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


@contextmanager
def stopped_store(store: Path) -> Iterator[None]:
    """Locks the store of a stopped service for a command. Raises Misconfigured while the service runs."""
    with ExitStack() as held:
        with _usable("nothing was changed", store):
            held.enter_context(process_lock(store))
        yield


@asynccontextmanager
async def stopped_service(
    settings: ServiceSettings, role: Role, check: Callable[[NatsLink], Awaitable[None]], *, name: str, stop: str = ""
) -> AsyncIterator[NatsLink]:
    """Locks the store of a stopped service, and connects a command to its bus. Raises as `stopped_store` and
    `refuse_running` do, and as `check` for an unusable bus."""
    with stopped_store(settings.private_folder()):
        async with connect(settings.nats, name) as link:
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
