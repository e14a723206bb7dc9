"""The gateway, put together: the only place where adapters are chosen. It lives until it is cancelled."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping

from ductile_gateway import runners
from ductile_gateway.bus import halts
from ductile_gateway.bus.micro_service import Questions, serve_questions
from ductile_gateway.bus.outgoing import NatsAgentKeys, NatsArtifacts, NatsBus, NatsRuns
from ductile_gateway.bus.permits import Permits
from ductile_gateway.bus.requests import requests_of
from ductile_gateway.calls.admission import Lanes
from ductile_gateway.calls.answers import Answers, tell_of_left_over
from ductile_gateway.calls.relay import CallExecution, CallRecords, Relay, StartConditions
from ductile_gateway.calls.waiting import Standstill
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.runner import Ductiles, tend
from ductile_gateway.foundations import Foundations, laid
from ductile_gateway.plugins.folders import InstalledPlugin
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.ports import Artifacts
from ductile_gateway.seen import Seen, seen
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.telling.metrics import GatewayMetrics
from ductile_gateway.tidying import Kept, Tidying
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.tools.reloading import follow_folders
from ductile_gateway.tools.toolbox import tools_at_last
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks.sender import CallbackCheck
from ductile_gateway.webhooks.service import serve_outbound
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.keeping_informed import keep_informed
from groundwork.nats.leases.members import may_join_anew
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, causes
from groundwork.service.serving import tell_ready
from schemas import subjects

WAITING_IN_HAND = 128
"""Requests that wait for their turn, beside those that run: the fairness between runs is among these."""
LOOKED_AT = 8
JOINS_AFTER_S = 0.5

log = logging.getLogger(__name__)


async def serve(settings: GatewaySettings, *, take_over: bool = False) -> None:
    """Run the gateway until cancelled. Raises Misconfigured, Broken or TryAgain, alone or in an ExceptionGroup.
    `take_over` makes the gateway end that owns the bus now."""
    while True:
        try:
            return await _serve(settings, take_over=take_over)
        except (Failure, ExceptionGroup) as error:
            if not settings.shared or not may_join_anew(error):
                raise
            log.warning("this gateway joins anew", extra={"why": str(next(causes(error)))})
            await asyncio.sleep(JOINS_AFTER_S)


async def _serve(settings: GatewaySettings, *, take_over: bool) -> None:
    offers, metrics = Offers(executor=settings.name), GatewayMetrics()
    laying = laid(settings, take_over=take_over, on_commit=metrics.store.committed)
    async with laying as stands_on, seen(settings, offers, stands_on, metrics) as told:
        link = stands_on.ground.link
        async with (
            serve_questions(link, told.status.tell, each=stands_on.me) as questions,
            asyncio.TaskGroup() as group,
        ):
            await questions.answer_callbacks(CallbackCheck(settings.outbound.callbacks).flaw)
            tidying = Tidying(stands_on.stores.rows, Kept.by(settings), SystemClock())
            await questions.answer_prune(tidying.prune)
            group.create_task(tidying.keep())
            group.create_task(link.until_lost())
            group.create_task(told.serve(settings, take_over=take_over))
            trust = _trust(settings, told)
            group.create_task(trust.keep())
            group.create_task(_listen(settings, offers, told))
            group.create_task(_tell_others(settings, trust, told))
            group.create_task(_carry(settings, offers, questions, trust, told))


def _trust(settings: GatewaySettings, told: Seen) -> Trust:
    pins, given = told.stands_on.stores.pins, settings.outbound.agent_keys
    agent = NatsAgentKeys(told.stands_on.ground.link, progress=settings.outbound.wants_progress())
    trust = Trust(pins, agent, given=given, refused=told.metrics.refused.add)
    told.status.also("agent's word", trust.findings)
    return trust


async def _carry(settings: GatewaySettings, offers: Offers, questions: Questions, trust: Trust, told: Seen) -> None:
    stands_on = told.stands_on
    link, lease = stands_on.ground.link, stands_on.ground.lease
    standstill = Standstill()
    await halts.look_at_last(link, standstill)
    tools = await tools_at_last(settings)
    offers.replace(tools.catalog, tools.problems, awaited=tools.awaited)
    ledger, ownership = stands_on.stores.ledger, stands_on.ownership
    lanes = _lanes(settings, offers, stands_on.permits)
    folder, stores = stands_on.ground.folder, stands_on.stores
    opening = runners.opened(settings, tools, stores=stores, folder=folder, queues=told.queues(), told=told.calls.sent)
    async with opening as runner:
        artifacts, clock = _artifacts(link), SystemClock()
        answers = Answers(ledger, artifacts, NatsBus(link), ownership=ownership, observer=told.calls, clock=clock)
        relay = Relay(
            CallExecution(offers=offers, runner=runner, lanes=lanes, escalated=_escalated(settings)),
            CallRecords(ledger=ledger, artifacts=artifacts, answers=answers),
            StartConditions(runs=NatsRuns(link), ownership=ownership, standstill=standstill),
            observer=told.calls,
            clock=clock,
        )
        requests = requests_of(
            link,
            relay,
            offers,
            trust=trust if settings.require_signed_writes else None,
            heard=ownership.heard,
            slots=settings.slots + WAITING_IN_HAND + LOOKED_AT,
            grace_s=settings.grace_s,
        )
        await questions.answer_catalog(lambda: offers.catalog, executor=settings.name)
        async with asyncio.TaskGroup() as group:
            group.create_task(requests.run())
            group.create_task(keep_informed(link, (subjects.STREAM_RESULTS,), relay.say_again))
            group.create_task(halts.follow(link, standstill))
            told.carrying(requests, ledger, relay.waiting, standstill)
            if isinstance(runner, Ductiles):
                told.status.also("ductile calls", runner.findings)
                group.create_task(tend(settings, tools, runner, offers, tell_late=answers.tell_late))
            if isinstance(runner, LocalPlugins):
                told.status.also("plugins", runner.findings)
                for work in _of_plugins(settings, offers, runner, lanes, answers, stands_on):
                    group.create_task(work)
            _told_ready(offers, {"nats": link.server_version, "epoch": lease.epoch})


def _told_ready(offers: Offers, facts: Mapping[str, object]) -> None:
    tell_ready()
    log.info("ready", extra={"tools": [offer.name for offer in offers.catalog.tools], **facts})


def _of_plugins(
    settings: GatewaySettings,
    offers: Offers,
    runner: LocalPlugins,
    lanes: Lanes,
    answers: Answers,
    stands_on: Foundations,
) -> Iterator[Coroutine[None, None, None]]:
    def take_up(plugins: Mapping[str, InstalledPlugin]) -> None:
        runner.now_has(plugins)
        if settings.choices() is None:  # the lanes of tools that are chosen are there from the start
            lanes.also(dict.fromkeys(plugins, settings.concurrency))

    if settings.plugins.reload:
        yield follow_folders(settings, offers, take_up)
    if settings.shared:
        yield tell_of_left_over(runner, stands_on.stores.ledger, answers)


async def _tell_others(settings: GatewaySettings, trust: Trust, told: Seen) -> None:
    await serve_outbound(
        settings.outbound,
        told.stands_on.ground.link,
        told.stands_on.stores,
        trust=trust,
        clock=SystemClock(),
        status=told.status,
        told=told.metrics.deliveries.add,
        permits=told.stands_on.permits,
    )


async def _listen(settings: GatewaySettings, offers: Offers, told: Seen) -> None:
    if not settings.ingress.listens():
        return
    stands_on = told.stands_on
    link = stands_on.ground.link
    await stands_on.ground.head_start()
    # Starlette takes a tenth of a second to load, which calls that a crash interrupted must not wait for.
    from ductile_gateway.webhooks.http import serve_ingress
    from ductile_gateway.webhooks.inbound import Inbound

    inbound = Inbound(
        settings.ingress,
        NatsBus(link),
        _artifacts(link),
        stands_on.stores.deliveries,
        find_offer=offers.find,
        clock=SystemClock(),
    )
    await serve_ingress(settings.ingress, inbound, told=told.metrics.received.add)


def _artifacts(link: NatsLink) -> Artifacts:
    return NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))


def _lanes(settings: GatewaySettings, offers: Offers, permits: Permits | None) -> Lanes:
    chosen = {name: choice.concurrency for name, choice in (settings.choices() or {}).items()}
    # Also for tools that are chosen and not there yet: a Ductile may have them later.
    names = {*chosen, *(offer.name for offer in offers.catalog.tools)}
    widths = {name: chosen.get(name) or settings.concurrency for name in names}
    return Lanes(widths, most=settings.slots, room=WAITING_IN_HAND, permits=permits)


def _escalated(settings: GatewaySettings) -> set[str]:
    return {name for name, choice in (settings.choices() or {}).items() if choice.on_rerun == "escalate"}
