"""All by which the gateway is seen from outside, put together: findings, probes, metrics, lines of the log, spans."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial

from ductile_gateway.bus.prerequisites import ROLE
from ductile_gateway.calls.waiting import Standstill, WaitingCalls, look_at_standstill
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.discovery import DuctileHealth
from ductile_gateway.ductile.discovery import look as look_at_ductile
from ductile_gateway.foundations import Foundations
from ductile_gateway.probes.server import Readiness, serve_probes
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.status import Look, Status, look_at_offers, look_at_store
from ductile_gateway.store.calls import CallLedger
from ductile_gateway.telling.calls import CallsTold, open_spans
from ductile_gateway.telling.metrics import (
    GatewayMetrics,
    observe_calls,
    observe_ductiles,
    observe_outbox,
    observe_readiness,
)
from ductile_gateway.tools.catalog import Offers
from groundwork.nats.connection import Needs
from groundwork.nats.lease import look_at_all
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.service.installed import installed_version
from groundwork.service.serving import head_start
from groundwork.service.store_folder import HAND_OVER_S
from groundwork.telemetry.metrics import push
from schemas import subjects
from schemas.permissions import indispensable
from schemas.values import dataclass

_MAY = indispensable("gateway")
UNANSWERED_S = 15.0
"""Longer than a cluster takes to elect a leader."""
NEEDS = Needs(_MAY.publish, _MAY.subscribe, "give it the permissions of the role gateway (docs/BUS.md, Permissions)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    stands_on: Foundations
    status: Status
    readiness: Readiness
    metrics: GatewayMetrics
    calls: CallsTold
    healths: Mapping[str, DuctileHealth]

    def queues(self) -> Mapping[str, Callable[[], int | None]]:
        """How many jobs each Ductile is known to have, by its name."""
        return {name: partial(getattr, health, "queue") for name, health in self.healths.items()}

    async def serve(self, settings: GatewaySettings, *, take_over: bool) -> None:
        instruments = self.metrics.instruments
        observe_readiness(instruments, self.readiness.wrong)
        observe_outbox(instruments, lambda: self.stands_on.stores.outbox.backlog().waiting)
        metrics = partial(instruments.exposed, subjects.SERVICE_GATEWAY)
        async with asyncio.TaskGroup() as group:
            within_s = HAND_OVER_S if take_over else 0.0
            group.create_task(serve_probes(settings.http, self.readiness, metrics=metrics, within_s=within_s))
            if self.healths:
                self.readiness["ductile"] = partial(_trouble, self.healths.values())
                observe_ductiles(instruments, self.healths)
            for health in self.healths.values():
                group.create_task(health.follow())
            if receiver := settings.telemetry.receiver("metrics"):
                await head_start()
                group.create_task(push(instruments, receiver, subjects.SERVICE_GATEWAY))

    def carrying(self, requests: PullLoop, ledger: CallLedger, waiting: WaitingCalls, standstill: Standstill) -> None:
        store = self.stands_on.store
        self.status.looks["gateway store"] = lambda: look_at_store(store.trouble, store.path.parent)
        self.status.looks["gateway halt"] = partial(look_at_standstill, standstill)
        self.status.waiting = waiting.told
        self.readiness["requests"] = lambda: requests.trouble
        observe_calls(
            self.metrics.instruments,
            in_hand=lambda: requests.in_hand,
            waiting=waiting.told,
            open_intents=ledger.number_open,
        )


@contextlib.asynccontextmanager
async def seen(
    settings: GatewaySettings, offers: Offers, stands_on: Foundations, metrics: GatewayMetrics
) -> AsyncIterator[Seen]:
    metrics.listen_to(stands_on.ground.link)
    ductiles = settings.every_ductile() if settings.runner == "ductile" else {}
    urls = {name: each.url for name, each in ductiles.items()}
    async with open_spans(settings.telemetry) as ended:
        yield Seen(
            stands_on=stands_on,
            status=_status(settings, offers, stands_on),
            readiness=_readiness(offers, stands_on),
            metrics=metrics,
            calls=CallsTold(metrics, ended, urls=urls, clock=SystemClock()),
            healths={name: DuctileHealth(each) for name, each in ductiles.items()},
        )


def _readiness(offers: Offers, stands_on: Foundations) -> Readiness:
    link, store = stands_on.ground.link, stands_on.store
    return Readiness(
        nats=lambda: _trouble_of_nats(link),
        store=lambda: store.trouble,
        tools=lambda: "" if offers.catalog.tools else "it waits until it is told its tools",
        requests=lambda: "none is taken yet",
    )


def _trouble_of_nats(link: NatsLink) -> str:
    if not link.connected:
        return "not connected"
    if link.unanswered_s > UNANSWERED_S:
        return f"it has stored nothing for {link.unanswered_s:.0f} s; if its disk was full it has to be restarted"
    return NEEDS.unmet(link.denials)


def _trouble(healths: Iterable[DuctileHealth]) -> str:
    troubles = [health.trouble for health in healths]
    return "; ".join(troubles) if all(troubles) else ""


def _status(settings: GatewaySettings, offers: Offers, stands_on: Foundations) -> Status:
    version = installed_version()
    looks: dict[str, Look] = {"gateway": partial(look_at_offers, offers, version=version, runner=settings.runner)}
    if settings.runner == "ductile":
        every, look = settings.every_ductile(), partial(look_at_ductile, offers=offers, others=settings.ductiles)
        looks |= {each.label: partial(look, each) for each in every.values()}
    number = partial(_living, stands_on.ground.link) if settings.shared else None
    return Status(looks=looks, version=version, executor=settings.name, name=stands_on.me, number=number)


async def _living(link: NatsLink) -> int:
    return sum(not record.free for record in await look_at_all(link, ROLE))
