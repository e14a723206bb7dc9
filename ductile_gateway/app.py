"""The composition root of the gateway, and `ductile-gateway serve`."""

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path

from nats.micro.service import Service

from ductile_gateway.bus.incoming import answer_callbacks, answer_catalog, answer_prune, request_loop, serve_endpoints
from ductile_gateway.bus.outgoing import NatsBus, agent_keys, follow_halt, has_ended, read_halt
from ductile_gateway.bus.ownership import ROLE, BusOwnership, require_topology
from ductile_gateway.bus.permits import NatsPermits, open_permits
from ductile_gateway.calls.admission import CallSlots, PauseGate
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.calls.relay import Relay
from ductile_gateway.retention import Retention
from ductile_gateway.settings import GatewaySettings, load
from ductile_gateway.status import Observability
from ductile_gateway.store import FILE, MIGRATIONS
from ductile_gateway.store.opening import mark_of, open_alone, open_shared
from ductile_gateway.store.rows import Rows
from ductile_gateway.telemetry import GatewayMetrics
from ductile_gateway.tools.toolbox import await_tools, follow_folders, keep_fresh, open_runner
from ductile_gateway.trust import Pins, Trust
from ductile_gateway.webhooks.destinations import callback_check
from ductile_gateway.webhooks.outbound import NotificationOutbox, serve_outbound
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.topology import watch_streams
from groundwork.service import serving
from groundwork.service.config_file import nearby
from groundwork.service.errors import Exit
from groundwork.service.program import loaded
from groundwork.service.serving import ServiceContext, keep_serving, let_recovery_start, notify_ready, service_context
from groundwork.service.store_folder import HAND_OVER_S, store_id
from groundwork.sqlite.file import pending_upgrade
from schemas import subjects
from schemas.values import dataclass

WAITING_IN_HAND = 128
"""Requests that wait for a slot, besides those that run: fairness between runs is among these."""
LOOKED_AT = 8
MISSED_AFTER_S = 4.0
"""One of several gateways counts as dead after so long without a renewed lease."""
RESULTS_LOOKED_AT_S = 5.0
"""Interval of the check for recent results that the bus has lost."""

log = logging.getLogger(__name__)


def run(config: Path | None, *, take_over: bool = False) -> Exit:
    """Runs until a signal. Raises Misconfigured for invalid settings, because there is no log before they are read."""
    settings = load(nearby(config))
    return serving.serve(settings, partial(serve, settings, take_over=take_over))


async def serve(settings: GatewaySettings, *, take_over: bool = False) -> None:
    """Runs until cancelled. `take_over`: ends the gateway that owns the bus now. Raises Misconfigured, Broken or
    TryAgain, alone or in an ExceptionGroup."""
    await keep_serving(partial(_serve, settings, take_over=take_over), who="gateway", shared=settings.shared)


async def _serve(settings: GatewaySettings, *, take_over: bool) -> None:
    offers, metrics = Offers(executor=settings.name), GatewayMetrics()
    async with contextlib.AsyncExitStack() as opened:
        ground, rows = await _open_store(opened, settings, take_over=take_over)
        rows.carrier.file.observe(metrics.store.committed)
        link, outbox = ground.link, NotificationOutbox(rows, settings.outbound.timeout_s)
        permits = None
        if settings.shared:
            permits = await opened.enter_async_context(open_permits(link, rows.by, ground.lease))
        observed = Observability(settings, offers, link, rows, metrics)
        opened.push_async_callback(observed.spans.send_the_last)  # also those of calls that ended in their grace
        agent = partial(agent_keys, link, progress=settings.outbound.wants_progress())
        trust = Trust(Pins(rows), agent, given=settings.outbound.agent_keys, refused=metrics.refused.add)
        observed.looks |= {"agent's word": trust.findings, "outbound": outbox.findings}
        gateway = _Gateway(ground, permits, observed, trust)
        retention = Retention(rows, settings)
        async with serve_endpoints(link, observed.tell, each=rows.by) as service, asyncio.TaskGroup() as group:
            await answer_callbacks(service, callback_check(settings.outbound.callbacks))
            await answer_prune(service, retention.prune)
            for work in (
                retention.keep(),
                link.wait_closed(),
                observed.serve(outbox.waiting, take_over=take_over),
                trust.keep(),
                gateway.serve_ingress(),
                serve_outbound(
                    settings.outbound,
                    link,
                    outbox,
                    trust=trust,
                    count=metrics.deliveries.add,
                    permits=permits,
                ),
                gateway.serve_requests(service),
            ):
                group.create_task(work)


async def _open_store(
    opened: contextlib.AsyncExitStack, settings: GatewaySettings, *, take_over: bool
) -> tuple[ServiceContext, Rows]:
    if not settings.shared:  # refuse a newer ledger before another gateway ends for it
        await asyncio.to_thread(pending_upgrade, settings.store / FILE, MIGRATIONS)
    lease_s = min(settings.lease_s, MISSED_AFTER_S) if settings.shared else settings.lease_s
    opening = service_context(
        ROLE,
        settings.model_copy(update={"lease_s": lease_s}),
        partial(require_topology, shared=settings.shared),
        name=subjects.SERVICE_GATEWAY,
        take_over=take_over,
        hand_over_s=HAND_OVER_S + settings.grace_s,
    )
    ground = await opened.enter_async_context(opening)
    if settings.shared:
        rows = open_shared(ground.folder, ground.link, store_id(ground.folder))
    else:
        rows = open_alone(settings.store)
    return ground, await opened.enter_async_context(rows)


@dataclass(eq=False)
class _Gateway:
    ground: ServiceContext
    permits: NatsPermits | None
    observed: Observability
    trust: Trust

    def __post_init__(self) -> None:
        self.bus = NatsBus(self.ground.link)
        self.artifacts = ArtifactBucket(self.ground.link, subjects.ARTIFACT_BUCKET)

    async def serve_ingress(self) -> None:
        """Serves webhooks. Loading them takes a tenth of a second, for which interrupted calls must not wait."""
        observed, settings = self.observed, self.observed.settings.ingress
        if settings.peers or settings.webhooks:
            await let_recovery_start()
            inbound, count = loaded("ductile_gateway.webhooks.inbound:Inbound"), observed.metrics.received.add
            await inbound(settings, self.bus, self.artifacts, observed.offers.find, count).serve()

    async def serve_requests(self, service: Service) -> None:
        """Serves tool requests, once the halt record and the tools are known."""
        ground, observed, gate = self.ground, self.observed, PauseGate()
        settings, offers, rows, link = observed.settings, observed.offers, observed.rows, ground.link
        ownership = BusOwnership(
            ground.lease, rows, await mark_of(rows), ground.predecessor, link if settings.shared else None
        )
        await read_halt(link, gate)
        tools = await await_tools(settings)
        offers.replace(tools.catalog, tools.problems, awaited=tools.awaited)
        choices, ledger = settings.choices() or {}, Ledger(rows, settings.run_mb << 20, settings.runner)
        opening = open_runner(
            settings, tools, ledger, ground.folder, healths=observed.healths, on_start=observed.calls.sent
        )
        async with opening as runner, asyncio.TaskGroup() as group:
            relay = Relay(
                offers=offers,
                runner=runner,
                slots=CallSlots(
                    {name: choice.concurrency for name, choice in choices.items() if choice.concurrency},
                    width=settings.concurrency,
                    most=settings.slots,
                    room=WAITING_IN_HAND,
                    permits=self.permits,
                ),
                escalated={name for name, choice in choices.items() if choice.on_rerun == "escalate"},
                ledger=ledger,
                artifacts=self.artifacts,
                bus=self.bus,
                has_ended=partial(has_ended, link),
                ownership=ownership,
                gate=gate,
                observer=observed.calls,
            )
            requests = request_loop(
                link,
                relay,
                trust=self.trust if settings.require_signed_writes else None,
                slots=settings.slots + WAITING_IN_HAND + LOOKED_AT,
                grace_s=settings.grace_s,
            )
            await answer_catalog(service, lambda: offers.catalog, each=rows.by or settings.name)
            group.create_task(requests.run())
            group.create_task(relay.go_on())
            group.create_task(
                watch_streams(
                    link, (subjects.STREAM_RESULTS,), lambda _: relay.republish(), every_s=RESULTS_LOOKED_AT_S
                )
            )
            group.create_task(follow_halt(link, gate))
            observed.observe_calls(requests, ledger, relay.waiting, gate)
            if settings.runner == "ductile":
                observed.looks["ductile calls"] = runner.findings
                group.create_task(runner.follow_late(relay.report_late))
                every_s = min(each.refresh_s for each in settings.every_ductile().values())
                group.create_task(
                    keep_fresh(settings, offers, runner.replace_tools, every_s=every_s, known=tools.ductiles)
                )
            if settings.runner == "plugins":
                observed.looks["plugins"] = runner.findings
                if settings.plugins.reload:
                    group.create_task(follow_folders(settings, offers, runner.replace_tools))
            notify_ready()
            names = [offer.name for offer in offers.catalog.tools]
            log.info("ready", extra={"tools": names, "nats": link.server_version, "epoch": ground.lease.epoch})
