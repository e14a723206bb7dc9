"""The gateway, put together: the only place where adapters are chosen. It lives until it is cancelled."""

import asyncio
import logging
from collections.abc import Mapping

from ductile_gateway.bus.micro_service import Questions, serve_questions
from ductile_gateway.bus.outgoing import NatsAgentKeys, NatsArtifacts, NatsBus, NatsRuns, follow_halt, halt_at_last
from ductile_gateway.bus.requests import requests_of
from ductile_gateway.calls.answers import Answers, tell_of_left_over
from ductile_gateway.calls.places import Lanes
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.waiting import Standstill
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.runner import Ductiles, tend
from ductile_gateway.foundations import laid, open_tools
from ductile_gateway.plugins.folders import InstalledPlugin
from ductile_gateway.plugins.runner import LocalPlugins
from ductile_gateway.seen import Seen, seen
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.telling.metrics import GatewayMetrics
from ductile_gateway.tidying import Tidying
from ductile_gateway.tools.catalog import Offers, ToolChoice
from ductile_gateway.tools.toolbox import Tools, follow_folders, tools_at_last
from ductile_gateway.trust import Trust
from ductile_gateway.webhooks.sender import CallbackCheck
from ductile_gateway.webhooks.service import serve_outbound
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.keeping_informed import keep_informed
from groundwork.nats.lease import may_join_anew
from groundwork.service.errors import Failure, causes
from groundwork.service.serving import head_start, tell_ready
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
        answering = serve_questions(link, told.status.tell, each=stands_on.me)
        async with answering as questions, asyncio.TaskGroup() as group:
            tidying = Tidying(stands_on.stores.rows, settings, SystemClock())
            await questions.answer_callbacks(CallbackCheck(settings.outbound.callbacks).flaw)
            await questions.answer_prune(tidying.prune)
            gateway = _Gateway(settings, offers, told)
            for work in (
                tidying.keep(),
                link.until_lost(),
                told.serve(settings, take_over=take_over),
                gateway.trust.keep(),
                gateway.listens(),
                gateway.tells_others(),
                gateway.carries(questions),
            ):
                group.create_task(work)


class _Gateway:
    def __init__(self, settings: GatewaySettings, offers: Offers, told: Seen) -> None:
        self._settings = settings
        self._offers = offers
        self._told = told
        self._stores, self._stands_on = told.stands_on.stores, told.stands_on
        self._link, self._clock = told.stands_on.ground.link, SystemClock()
        self._bus, self._artifacts = (
            NatsBus(self._link),
            NatsArtifacts(ArtifactBucket(self._link, subjects.ARTIFACT_BUCKET)),
        )
        agent = NatsAgentKeys(self._link, progress=settings.outbound.wants_progress())
        given, refused = settings.outbound.agent_keys, told.metrics.refused.add
        self.trust = Trust(pins=self._stores.pins, agent=agent, given=given, refused=refused)
        told.status.looks["agent's word"] = self.trust.findings

    async def carries(self, questions: Questions) -> None:
        """Requests, once it is known whether everything is stopped, and which tools there are."""
        settings, offers, link, standstill = self._settings, self._offers, self._link, Standstill()
        await halt_at_last(link, standstill)
        tools = await tools_at_last(settings)
        offers.replace(tools.catalog, tools.problems, awaited=tools.awaited)
        folder, lease = self._stands_on.ground.folder, self._stands_on.ground.lease
        queues, sent = self._told.queues(), self._told.calls.sent
        opening = open_tools(settings, tools, stores=self._stores, folder=folder, queues=queues, told=sent)
        async with opening as runner, asyncio.TaskGroup() as group:
            ledger, ownership, calls = self._stores.ledger, self._stands_on.ownership, self._told.calls
            answers = Answers(
                ledger=ledger,
                artifacts=self._artifacts,
                bus=self._bus,
                ownership=ownership,
                observer=calls,
                clock=self._clock,
            )
            lanes = self._lanes()
            relay = Relay(
                offers=offers,
                runner=runner,
                lanes=lanes,
                escalated={name for name, choice in self._choices.items() if choice.on_rerun == "escalate"},
                ledger=ledger,
                artifacts=self._artifacts,
                answers=answers,
                runs=NatsRuns(link),
                ownership=ownership,
                standstill=standstill,
                observer=calls,
                clock=self._clock,
            )
            requests = requests_of(
                link,
                relay,
                offers,
                trust=self.trust if settings.require_signed_writes else None,
                note_delivery=ownership.note_delivery,
                slots=settings.slots + WAITING_IN_HAND + LOOKED_AT,
                grace_s=settings.grace_s,
            )
            await questions.answer_catalog(lambda: offers.catalog, executor=settings.name)
            group.create_task(requests.run())
            group.create_task(keep_informed(link, (subjects.STREAM_RESULTS,), relay.say_again))
            group.create_task(follow_halt(link, standstill))
            self._told.carrying(requests, ledger, relay.waiting, standstill)
            if isinstance(runner, Ductiles):
                self._of_ductiles(runner, tools, answers, group)
            if isinstance(runner, LocalPlugins):
                self._of_plugins(runner, lanes, answers, group)
            tell_ready()
            names = [offer.name for offer in offers.catalog.tools]
            log.info("ready", extra={"tools": names, "nats": link.server_version, "epoch": lease.epoch})

    async def tells_others(self) -> None:
        await serve_outbound(
            self._settings.outbound,
            self._link,
            self._stores,
            trust=self.trust,
            clock=self._clock,
            status=self._told.status,
            told=self._told.metrics.deliveries.add,
            permits=self._stands_on.permits,
        )

    async def listens(self) -> None:
        """To events from outside."""
        settings = self._settings.ingress
        if not settings.listens():
            return
        await head_start()
        # Starlette takes a tenth of a second to load, which calls that a crash interrupted must not wait for.
        from ductile_gateway.webhooks.http import serve_ingress
        from ductile_gateway.webhooks.inbound import Inbound

        inbound = Inbound(settings, self._bus, self._artifacts, find_offer=self._offers.find, clock=self._clock)
        await serve_ingress(settings, inbound, told=self._told.metrics.received.add)

    def _of_ductiles(self, runner: Ductiles, tools: Tools, answers: Answers, group: asyncio.TaskGroup) -> None:
        self._told.status.looks["ductile calls"] = runner.findings
        group.create_task(tend(self._settings, tools, runner, self._offers, tell_late=answers.tell_late))

    def _of_plugins(self, runner: LocalPlugins, lanes: Lanes, answers: Answers, group: asyncio.TaskGroup) -> None:
        def take_up(plugins: Mapping[str, InstalledPlugin]) -> None:
            runner.now_has(plugins)
            if not self._choices:  # the lanes of tools that are chosen are there from the start
                lanes.also(dict.fromkeys(plugins, self._settings.concurrency))

        self._told.status.looks["plugins"] = runner.findings
        if self._settings.plugins.reload:
            group.create_task(follow_folders(self._settings, self._offers, take_up))
        if self._settings.shared:
            group.create_task(tell_of_left_over(runner, self._stores.ledger, answers))

    def _lanes(self) -> Lanes:
        """Also for tools that are chosen and not there yet: a Ductile may have them later."""
        chosen = {name: choice.concurrency for name, choice in self._choices.items()}
        names = {*chosen, *(offer.name for offer in self._offers.catalog.tools)}
        widths = {name: chosen.get(name) or self._settings.concurrency for name in names}
        return Lanes(widths, most=self._settings.slots, room=WAITING_IN_HAND, permits=self._stands_on.permits)

    @property
    def _choices(self) -> Mapping[str, ToolChoice]:
        return self._settings.choices() or {}
