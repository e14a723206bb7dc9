"""The status of the gateway: findings for `agentic doctor`, probes, and the levels that metrics show."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from ductile_gateway.bus.ownership import ROLE
from ductile_gateway.calls.admission import PauseGate, WaitingCalls, pause_findings, waiting_findings
from ductile_gateway.calls.artifacts import printable
from ductile_gateway.calls.ledger import Ledger
from ductile_gateway.calls.policy import Offers
from ductile_gateway.ductile.jobs import DuctileHealth
from ductile_gateway.settings import GatewaySettings
from ductile_gateway.store.rows import Rows
from ductile_gateway.telemetry import CallTelemetry, GatewayMetrics, Spans
from groundwork.nats.lease import read_member_leases
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.service.errors import Broken, Failure, Misconfigured, TryAgain, in_time
from groundwork.service.program import installed_version, loaded
from groundwork.service.serving import let_recovery_start, listening
from groundwork.service.store_folder import HAND_OVER_S
from schemas import subjects
from schemas.status import Finding, GatewayStatus, WaitingCall, counted
from schemas.values import dataclass

UNANSWERED_S = 15.0
"""Longer than a cluster takes to elect a leader."""
TOOLS_ARE_SET_BY = "see docs/TOOLS.md; and docs/CONFIGURATION.md, gateway.tools"
LOOK_WITHIN_S = 3.0
NEARLY_FULL, MUCH_ROOM = 0.8, 20 << 30
"""Used share of a disk above which a finding warns, unless so many bytes are free."""

StatusCheck = Callable[[], Sequence[Finding] | Awaitable[Sequence[Finding]]]

log = logging.getLogger(__name__)


async def findings_of(looks: Mapping[str, StatusCheck], *, within_s: float = LOOK_WITHIN_S) -> Sequence[Finding]:
    found = await asyncio.gather(*(_ask(name, look, within_s) for name, look in looks.items()))
    return list(chain.from_iterable(found))


async def _ask(name: str, look: StatusCheck, within_s: float) -> Sequence[Finding]:
    try:
        async with in_time("it", within_s):
            found = look()
            return await found if isinstance(found, Awaitable) else found
    except (TryAgain, Broken) as error:
        why = printable(error)
    except Exception as error:  # the other parts still report
        log.exception("a part of the gateway cannot report its status", extra={"part": name})
        why = f"it cannot report its status ({type(error).__name__})"
    return [Finding(name=name, mark="warning", text=why, remedy="ask again; see the gateway's log")]


@dataclass(eq=False)
class Observability:
    """The gateway's reports of itself: status, probes, metrics and spans."""

    settings: GatewaySettings
    offers: Offers
    link: NatsLink
    rows: Rows
    metrics: GatewayMetrics
    waiting: Callable[[], tuple[WaitingCall, ...]] = tuple

    def __post_init__(self) -> None:
        settings, link, store = self.settings, self.link, self.rows.carrier.file
        link.repeats = self.metrics
        self.ductiles = settings.every_ductile() if settings.runner == "ductile" else {}
        self.healths = {name: DuctileHealth() for name in self.ductiles}
        self.looks: dict[str, StatusCheck] = {"gateway": partial(_offer_findings, self.offers, settings.runner)}
        for each in self.ductiles.values():
            look = loaded("ductile_gateway.ductile.discovery:check")
            self.looks[each.label] = partial(look, each, offers=self.offers, others=settings.ductiles)
        self.readiness: dict[str, Callable[[], str]] = {
            "nats": lambda: _trouble_of_nats(link),
            "store": lambda: store.trouble,
            "tools": lambda: "" if self.offers.catalog.tools else "it waits until it is told its tools",
            "requests": lambda: "none is taken yet",
        }
        """Returns the trouble with each dependency, for people; empty if there is none."""
        self.spans = Spans(settings.telemetry.sender(subjects.SERVICE_GATEWAY))
        urls = {name: each.url for name, each in self.ductiles.items()}
        self.calls = CallTelemetry(self.metrics, self.spans, urls=urls)

    async def tell(self) -> GatewayStatus:
        findings, waiting, number = await findings_of(self.looks), self.waiting(), 1
        if self.settings.shared:
            with contextlib.suppress(Failure):
                number = max(1, sum(not one.free for one in await read_member_leases(self.link, ROLE)))
        return GatewayStatus(
            version=installed_version(),
            findings=(*findings, *waiting_findings(waiting)),
            waiting=waiting,
            executor=self.settings.name,
            gateway=self.rows.by,
            gateways=number,
        )

    def wrong(self) -> dict[str, str]:
        return {name: printable(check()) for name, check in self.readiness.items()}

    async def serve(self, outbox: Callable[[], int], *, take_over: bool) -> None:
        self.metrics.observe_gateway(self.wrong, outbox)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer_probes(within_s=HAND_OVER_S if take_over else 0.0))
            group.create_task(self.spans.keep_sending())
            if self.healths:
                self.readiness["ductile"] = self._trouble
                self.metrics.observe_ductiles(self.healths)
            for name, health in self.healths.items():
                follow_health = loaded("ductile_gateway.ductile.discovery:follow_health")
                group.create_task(follow_health(self.ductiles[name], health))

    def observe_calls(self, requests: PullLoop, ledger: Ledger, waiting: WaitingCalls, gate: PauseGate) -> None:
        store = self.rows.carrier.file
        self.looks["gateway store"] = lambda: store_findings(store.trouble, store.path.parent)
        self.looks["gateway halt"] = partial(pause_findings, gate)
        self.waiting = waiting.reported
        self.readiness["requests"] = lambda: requests.trouble
        self.metrics.observe_calls(lambda: requests.in_hand, waiting.reported, ledger.number_open)

    def _trouble(self) -> str:
        troubles = [health.trouble for health in self.healths.values()]
        return "; ".join(troubles) if all(troubles) else ""

    async def _answer_probes(self, *, within_s: float) -> None:
        """Listens at once, and answers once interrupted calls go on. Returns if the default address is taken.
        `within_s`: time for another gateway to leave the address. Raises Misconfigured."""
        http, metrics = self.settings.http, partial(self.metrics.instruments.exposed, subjects.SERVICE_GATEWAY)
        try:
            async with listening(http.host, http.port, who="gateway", within_s=within_s) as listener:
                await let_recovery_start()
                answer_probes = loaded("ductile_gateway.http:answer_probes")  # takes a tenth of a second
                await answer_probes(listener, self.wrong, metrics, allowed_hosts=http.allowed_hosts)
        except Misconfigured as error:
            if not http.model_fields_set.isdisjoint(("host", "port")):
                raise
            log.warning("no probes are answered: %s Set `gateway.http.port` where there are to be two", error)


def _trouble_of_nats(link: NatsLink) -> str:
    if not link.connected:
        return "not connected"
    if link.unanswered_s > UNANSWERED_S:
        return f"it has stored nothing for {link.unanswered_s:.0f} s; if its disk was full it has to be restarted"
    return link.denied


def store_findings(trouble: str, folder: Path) -> Sequence[Finding]:
    if trouble:
        text = f"nothing could be stored at the last try: {printable(trouble)}"
        return [Finding(name="gateway store", mark="wrong", text=text, remedy="make room: requests wait on the bus")]
    size, _, free = shutil.disk_usage(folder)
    if free >= size * (1 - NEARLY_FULL) or free >= MUCH_ROOM:
        return ()
    text = f"the disk of {folder} is {1 - free / size:.0%} full"
    remedy = "free space soon: without it nothing can be stored"
    return [Finding(name="gateway store", mark="warning", text=text, remedy=remedy)]


def _offer_findings(offers: Offers, runner: str) -> Sequence[Finding]:
    if not offers.catalog.tools:
        text, remedy = "waits until it is told its tools", "see below; requests wait on the bus until then"
        return [Finding(name="gateway", mark="wrong", text=f"{installed_version()}, {text}", remedy=remedy)]
    text = f"{installed_version()}, {counted(len(offers.catalog.tools), 'tools')}, runner {runner}"
    left_out = [
        Finding(name="gateway tools", mark="warning", text=printable(problem), remedy=TOOLS_ARE_SET_BY)
        for problem in offers.problems
    ]
    return [Finding(name="gateway", mark="ok", text=text), *left_out]
