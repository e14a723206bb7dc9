"""What the agent stands on: the bus, found as it must be and owned; the store, for this process alone; its address.

The store's lock comes before the lease, because a store may take its own lease over from a process that is dead. Where
the agent is told to take over it is the other way round: the lease makes the process that has it end, and then what
that one leaves is waited for.
"""

import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

from agent_service.bus.missed import MARK
from agent_service.bus.topology import topology
from agent_service.errors import Misconfigured
from agent_service.settings import AgentSettings, HttpSettings
from agent_service.store.sqlite import SqliteStore
from groundwork.nats import link as nats_link
from groundwork.nats.lease import Lease, hold
from groundwork.nats.lease_record import Owner, Role
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import check_topology
from groundwork.service.errors import Failure
from groundwork.service.hand_over import HAND_OVER_S, locked, once_free
from groundwork.service.process_lock import AlreadyRunning
from schemas import subjects

CONNECT_WITHIN_S = 10.0
OPERATORS_CHOICE = frozenset({"max_bytes", "max_age", "num_replicas"})
"""What a stream may have otherwise than we would create it."""
ROLE = Role(bucket=subjects.LEASE_BUCKET, key=subjects.LEASE_AGENT, command="agentic serve")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundations:
    """`listener` is the socket of the HTTP API."""

    link: NatsLink
    lease: Lease
    store: SqliteStore
    listener: socket.socket


@asynccontextmanager
async def laid(settings: AgentSettings, *, take_over: bool) -> AsyncIterator[Foundations]:
    """All of them, left again in the reverse order. Raises Misconfigured, or what the bus raises."""
    within_s = HAND_OVER_S if take_over else 0.0
    async with _connected(settings) as link, AsyncExitStack() as ours:
        await _check(link)
        if take_over:
            lease = await ours.enter_async_context(_owned(settings, link, take_over=True))
        await ours.enter_async_context(_locked(settings, within_s=within_s))
        if not take_over:
            lease = await ours.enter_async_context(_owned(settings, link))
        store = await ours.enter_async_context(SqliteStore.open(settings.store))
        listener = ours.enter_context(await _listening(settings.http, within_s=within_s))
        yield Foundations(link=link, lease=lease, store=store, listener=listener)


@asynccontextmanager
async def _connected(settings: AgentSettings) -> AsyncIterator[NatsLink]:
    try:
        link = await nats_link.connect(settings.nats.settings(subjects.SERVICE_AGENT), timeout_s=CONNECT_WITHIN_S)
    except Failure as error:
        raise type(error)(f"{error}. Start one with `agentic dev`, or set `nats.urls`") from error
    try:
        yield link
    finally:
        await link.close()


async def _check(link: NatsLink) -> None:
    findings = await check_topology(link, topology())
    missing = ", ".join(f.what for f in findings if f.kind == "missing")
    if missing:
        raise Misconfigured(f"NATS has no {missing}: run `agentic setup` once, then start again")
    for finding in (f for f in findings if f.field not in OPERATORS_CHOICE):
        log.warning("NATS differs", extra={"what": finding.what, "field": finding.field, "remedy": finding.remedy})


@asynccontextmanager
async def _owned(settings: AgentSettings, link: NatsLink, *, take_over: bool = False) -> AsyncIterator[Lease]:
    """The bus, for this agent alone."""
    with _usable(settings):
        owner = Owner.here(settings.store, ttl_s=settings.lease_s)
    lease = Lease(link, ROLE, owner)
    async with hold(lease, link, take_over=take_over) as before:
        if before and before.owner.holder != owner.holder:
            log.info("another agent had the bus", extra={"who": str(before.owner)})
            (settings.store / MARK).touch()
        yield lease


@asynccontextmanager
async def _locked(settings: AgentSettings, *, within_s: float) -> AsyncIterator[None]:
    async with AsyncExitStack() as held:
        with _usable(settings):
            await held.enter_async_context(locked(settings.store, within_s=within_s))
        yield


@contextmanager
def _usable(settings: AgentSettings) -> Iterator[None]:
    """The store's folder, made if absent."""
    try:
        settings.store.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except (OSError, AlreadyRunning) as error:
        raise Misconfigured(f"agent.store {settings.store} cannot be used: {error}") from error


async def _listening(http: HttpSettings, *, within_s: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET

    def listen() -> socket.socket:
        return socket.create_server((http.host, http.port), family=family, backlog=1024)

    try:
        return await once_free(listen, within_s=within_s)
    except OSError as error:
        where = f"{http.host}:{http.port}"
        raise Misconfigured(f"cannot listen on {where} ({error.strerror}): is another agent running there?") from error
