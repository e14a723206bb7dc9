"""The outbound side put together; and whether anything would ever be sent to a callback, told at the wake.

A callback's addresses are checked again when something is sent. A name that cannot be looked up soon is not refused.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

from ductile_gateway.company import Company
from ductile_gateway.outbound.bus import NatsCallbacks, NatsDeadLetters, NatsLifecycle
from ductile_gateway.outbound.destinations import Forbidden, check_address, flaw_of, read_destination
from ductile_gateway.outbound.dispatch import Outbound, Receivers, Told
from ductile_gateway.outbound.notifications import relay_of
from ductile_gateway.outbound.senders import (
    UNSIGNED,
    RelaySender,
    Resolve,
    open_callback_sender,
    open_relay_sender,
    resolve_name,
)
from ductile_gateway.outbound.settings import CallbackSettings, OutboundSettings
from ductile_gateway.ports import Clock
from ductile_gateway.status import Status
from ductile_gateway.store.opening import Stores
from ductile_gateway.store.outbox import OwedNotifications
from ductile_gateway.trust import Trust
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.status import Finding

LOOK_UP_WITHIN_S = 1.0
RESOLVERS = 4
"""Names looked up at the same time, apart from those of what is sent: who asks for runs chooses these names."""


class Callbacks:
    def __init__(
        self, settings: CallbackSettings, resolve: Resolve = resolve_name, *, within_s: float = LOOK_UP_WITHIN_S
    ) -> None:
        self._is_signed = settings.secret is not None
        self._rules = settings.network
        self._resolve = resolve
        self._within_s = within_s
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="callback-resolver")

    async def flaw(self, url: str) -> str:
        if not self._is_signed:
            return UNSIGNED
        return flaw_of(url, self._rules) or await self._flaw_of_addresses(url)

    async def _flaw_of_addresses(self, url: str) -> str:
        destination = read_destination(url, self._rules)
        looking = asyncio.get_running_loop().run_in_executor(
            self._resolvers, self._resolve, destination.host, destination.port
        )
        try:
            for address in await asyncio.wait_for(looking, self._within_s):
                check_address(address, self._rules)
        except Forbidden as error:
            return f"{destination.host} has a forbidden address: {error}"
        except OSError:  # nobody knows the name now, or not soon: a TimeoutError is one, too
            return ""
        return ""


KEPT = timedelta(days=15)
"""How long a delivery is remembered after it was made: a day longer than the bus can bring its event again."""
LONG = timedelta(minutes=5)


async def serve_outbound(
    settings: OutboundSettings,
    link: NatsLink,
    stores: Stores,
    *,
    trust: Trust,
    clock: Clock,
    status: Status,
    told: Told,
    company: Company,
) -> None:
    """Until cancelled; `told` of each try. One gateway takes the events, and sends what it took. Raises Misconfigured
    or Broken."""
    outbox = stores.outbox
    async with (
        relays_of(settings, clock) as relays,
        open_callback_sender(settings, clock=clock) as callbacks,
        asyncio.TaskGroup() as group,
    ):
        receivers = Receivers(
            relays=relays,
            callbacks=callbacks,
            addresses=NatsCallbacks(link),
            dead_letters=NatsDeadLetters(link),
        )
        outbound = Outbound(settings, outbox, receivers, clock=clock, told=told)
        stores.on_owed = outbound.look
        status.also("outbound", partial(_look, outbox, outbound, clock))
        hears = partial(NatsLifecycle, link, trust=trust, take=outbound.take, sole=company.is_alone)
        milestones = hears(subjects.STREAM, subjects.DURABLE_LIFECYCLE)
        group.create_task(outbound.run())
        group.create_task(company.as_one("events", milestones.run))
        if settings.wants_progress():
            progress = hears(subjects.STREAM_PROGRESS, subjects.DURABLE_PROGRESS)
            group.create_task(company.as_one("events", progress.run))


@contextlib.asynccontextmanager
async def relays_of(settings: OutboundSettings, clock: Clock) -> AsyncIterator[Mapping[str, RelaySender]]:
    async with contextlib.AsyncExitStack() as stack:
        opening = {
            relay_of(name): open_relay_sender(relay, clock=clock) for name, relay in settings.every_relay().items()
        }
        yield {target: await stack.enter_async_context(sender) for target, sender in opening.items()}


async def _look(outbox: OwedNotifications, outbound: Outbound, clock: Clock) -> Sequence[Finding]:
    backlog = outbox.backlog()
    found = []
    if backlog.oldest and clock.now() - backlog.oldest > LONG:
        text = f"{backlog.waiting} deliveries wait, the oldest since {backlog.oldest:%Y-%m-%dT%H:%M:%SZ}"
        remedy = f"see what is wrong at {backlog.lane}: {backlog.why}" if backlog.why else "see the gateway's log"
        found.append(Finding(name="outbound", mark="warning", text=text, remedy=remedy))
    if backlog.dead:
        text = f"{backlog.dead} deliveries were given up in the last {KEPT.days} days"
        found.append(Finding(name="outbound", mark="warning", text=text, remedy="see them with `agentic dlq ls`"))
    for (target, event), count in sorted(outbound.unheard.items()):
        text = f"{count} times {event} was told to Ductile ({target}), and no pipeline there listens to it"
        remedy = f"add a pipeline on it, or take it out of `types` of that {target} in gateway.outbound"
        found.append(Finding(name="outbound", mark="warning", text=text, remedy=remedy))
    return found
