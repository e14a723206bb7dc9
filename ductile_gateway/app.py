"""The gateway, put together: the only place where adapters are chosen; and `ductile-gateway serve`. It stands on the
bus, its own, and its rows, for this process alone."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from ductile_gateway.bus.incoming import MicroEndpoints, request_loop, serve_endpoints
from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus, agent_keys, follow_halt, has_ended, read_halt
from ductile_gateway.bus.ownership import ROLE, BusOwnership, RestoredLedger, require_topology
from ductile_gateway.bus.permits import NatsPermits
from ductile_gateway.calls.admission import PauseGate, Slots
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.calls.relay import Relay
from ductile_gateway.retention import Retention
from ductile_gateway.settings import GatewaySettings, load, settings_file
from ductile_gateway.status import Observability
from ductile_gateway.store import ahead
from ductile_gateway.store.opening import mark_of, open_alone, open_shared
from ductile_gateway.store.rows import Rows
from ductile_gateway.telemetry import GatewayMetrics
from ductile_gateway.tools.toolbox import await_tools, follow_folders, keep_fresh, open_runner
from ductile_gateway.trust import Pins, Trust
from ductile_gateway.webhooks.destinations import callback_check
from ductile_gateway.webhooks.outbound import Outbox, serve_outbound
from groundwork.nats.buckets import ArtifactBucket
from groundwork.nats.following import keep_informed
from groundwork.nats.lease import may_join_anew
from groundwork.service import foundations, serving
from groundwork.service.errors import Exit, Failure, causes
from groundwork.service.foundations import Ground
from groundwork.service.program import loaded
from groundwork.service.serving import OF_A_SERVICE, cancelled_by_signals, head_start, tell_ready
from groundwork.service.store_folder import HAND_OVER_S, store_id
from groundwork.sqlite.group_commit import OnCommit
from schemas import subjects
from schemas.values import dataclass

WAITING_IN_HAND = 128
"""Requests that wait for their turn, beside those that run: the fairness between runs is among these."""
LOOKED_AT = 8
JOINS_AFTER_S = 0.5
MISSED_AFTER_S = 4.0
"""One of several is taken for dead that has not renewed its lease for so long."""
RESULTS_LOOKED_AT_S = 5.0
"""How often it is asked whether results are lost that were just published: they are published again for a minute."""

log = logging.getLogger(__name__)


def run(config: Path | None, *, take_over: bool = False) -> Exit:
    """Until it is told to stop. Raises Misconfigured for settings that cannot be used: until they are read there is no
    log to say it in."""
    settings = load(settings_file(config))

    async def until_told() -> None:
        with cancelled_by_signals(lambda: None, OF_A_SERVICE):
            await serve(settings, take_over=take_over)
        log.info("stopped")

    return serving.serve(settings.log, settings.secrets(), until_told)


async def serve(settings: GatewaySettings, *, take_over: bool = False) -> None:
    """Run the gateway until cancelled. Raises Misconfigured, Broken or TryAgain, alone or in an ExceptionGroup.
    `take_over` makes the gateway end that owns the bus now."""
    while True:
        try:
            return await _serve(settings, take_over=take_over)
        except (Failure, ExceptionGroup) as error:
            if not settings.shared or not may_join_anew(error):
                raise
            log.warning("this gateway joins again", extra={"why": str(next(causes(error)))})
            await asyncio.sleep(JOINS_AFTER_S)


async def _serve(settings: GatewaySettings, *, take_over: bool) -> None:
    offers, metrics = Offers(executor=settings.name), GatewayMetrics()
    laying = _laid(settings, take_over=take_over, on_commit=metrics.store.committed)
    async with laying as stands_on, contextlib.AsyncExitStack() as leaving:
        link, rows, outbox = stands_on.ground.link, stands_on.rows, Outbox(stands_on.rows)
        told = Observability(settings, offers, link, rows, metrics)
        leaving.push_async_callback(told.spans.send_the_last)  # also those of calls that ended in their grace
        agent = partial(agent_keys, link, progress=settings.outbound.wants_progress())
        trust = Trust(Pins(rows), agent, given=settings.outbound.agent_keys, refused=metrics.refused.add)
        told.status.looks["agent's word"] = trust.findings
        answering = serve_endpoints(link, told.status.tell, each=rows.by)
        async with answering as questions, asyncio.TaskGroup() as group:
            tidying = Retention(rows, settings)
            await questions.answer_callbacks(callback_check(settings.outbound.callbacks))
            await questions.answer_prune(tidying.prune)
            gateway = _Gateway(settings, offers, stands_on, told, trust, metrics)
            for work in (
                tidying.keep(),
                link.until_lost(),
                told.serve(outbox.waiting, take_over=take_over),
                trust.keep(),
                gateway.listens(),
                gateway.tells_others(outbox),
                gateway.carries(questions),
            ):
                group.create_task(work)


@dataclass(frozen=True, slots=True)
class _Foundations:
    """`permits`: of one of several gateways; else None."""

    ground: Ground
    rows: Rows
    ownership: BusOwnership
    permits: NatsPermits | None


@contextlib.asynccontextmanager
async def _laid(settings: GatewaySettings, *, take_over: bool, on_commit: OnCommit) -> AsyncIterator[_Foundations]:
    laying = foundations.laid(
        ROLE,
        settings.nats,
        settings.private_folder(),
        partial(require_topology, shared=settings.shared),
        name=subjects.SERVICE_GATEWAY,
        shared=settings.shared,
        take_over=take_over,
        lease_s=min(settings.lease_s, MISSED_AFTER_S) if settings.shared else settings.lease_s,
        hand_over_s=HAND_OVER_S + settings.grace_s,
    )
    if settings.shared:
        async with laying as ground:
            link, me = ground.link, store_id(ground.folder)
            async with open_shared(ground.folder, link, me, on_commit=on_commit) as rows:
                ownership = BusOwnership(ground.lease, link=link, me=me, restored=await _restored(rows))
                permits = NatsPermits(link, me)
                await permits.listen()
                yield _Foundations(ground, rows, ownership, permits)
        return
    await asyncio.to_thread(ahead, settings.store)  # refused before anybody is made to end for it
    opening = open_alone(settings.store, on_commit=on_commit)
    async with laying as ground, opening as rows:
        ownership = BusOwnership(ground.lease, ground.predecessor, restored=await _restored(rows))
        yield _Foundations(ground, rows, ownership, None)


async def _restored(rows: Rows) -> RestoredLedger | None:
    mark = await mark_of(rows)
    return RestoredLedger(mark, rows) if mark.backup else None


@dataclass(eq=False)
class _Gateway:
    settings: GatewaySettings
    offers: Offers
    stands_on: _Foundations
    told: Observability
    trust: Trust
    metrics: GatewayMetrics

    def __post_init__(self) -> None:
        self.link = self.stands_on.ground.link
        self.bus = NatsBus(self.link)
        self.artifacts = NatsArtifacts(ArtifactBucket(self.link, subjects.ARTIFACT_BUCKET))

    async def tells_others(self, outbox: Outbox) -> None:
        await serve_outbound(
            self.settings.outbound,
            self.link,
            outbox,
            trust=self.trust,
            looks=self.told.status.looks,
            count=self.metrics.deliveries.add,
            permits=self.stands_on.permits,
        )

    async def listens(self) -> None:
        """To events from outside. What serves them takes a tenth of a second to load, which calls that a crash
        interrupted must not wait for."""
        settings = self.settings.ingress
        if settings.listens():
            await head_start()
            inbound = loaded("ductile_gateway.webhooks.inbound:Inbound")
            await inbound(settings, self.bus, self.artifacts, self.offers.find, self.metrics.received.add).serve()

    async def carries(self, questions: MicroEndpoints) -> None:
        """Requests, once it is known whether everything is stopped, and which tools there are."""
        settings, offers, link, told, standstill = self.settings, self.offers, self.link, self.told, PauseGate()
        await read_halt(link, standstill)
        tools = await await_tools(settings)
        offers.replace(tools.catalog, tools.problems, awaited=tools.awaited)
        ground, choices = self.stands_on.ground, settings.choices() or {}
        ledger = Ledger(self.stands_on.rows, run_bytes=settings.run_mb << 20)
        opening = open_runner(settings, tools, ledger, ground.folder, queues=told.queues, on_start=told.calls.sent)
        async with opening as runner, asyncio.TaskGroup() as group:
            relay = Relay(
                offers=offers,
                runner=runner,
                lanes=Slots(
                    {name: choice.concurrency for name, choice in choices.items() if choice.concurrency},
                    width=settings.concurrency,
                    most=settings.slots,
                    room=WAITING_IN_HAND,
                    permits=self.stands_on.permits,
                ),
                escalated={name for name, choice in choices.items() if choice.on_rerun == "escalate"},
                ledger=ledger,
                artifacts=self.artifacts,
                bus=self.bus,
                has_ended=partial(has_ended, link),
                ownership=self.stands_on.ownership,
                standstill=standstill,
                observer=told.calls,
            )
            requests = request_loop(
                link,
                relay,
                trust=self.trust if settings.require_signed_writes else None,
                slots=settings.slots + WAITING_IN_HAND + LOOKED_AT,
                grace_s=settings.grace_s,
            )
            await questions.answer_catalog(lambda: offers.catalog, executor=settings.name)
            group.create_task(requests.run())
            informed = keep_informed(link, (subjects.STREAM_RESULTS,), relay.say_again, every_s=RESULTS_LOOKED_AT_S)
            group.create_task(informed)
            group.create_task(follow_halt(link, standstill))
            told.carrying(requests, ledger, relay.waiting, standstill)
            if settings.runner == "ductile":
                told.status.looks["ductile calls"] = runner.findings
                group.create_task(runner.follow_late(relay.tell_late))
                every_s = min(each.refresh_s for each in settings.every_ductile().values())
                group.create_task(keep_fresh(settings, offers, runner.now_has, every_s=every_s, known=tools.ductiles))
            if settings.runner == "plugins":
                told.status.looks["plugins"] = runner.findings
                if settings.plugins.reload:
                    group.create_task(follow_folders(settings, offers, runner.now_has))
            tell_ready()
            names = [offer.name for offer in offers.catalog.tools]
            log.info("ready", extra={"tools": names, "nats": link.server_version, "epoch": ground.lease.epoch})
