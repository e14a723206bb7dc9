"""What others on the bus are asked: the server, gateways beside their tools, and how full streams are. Nothing is
changed, but that a gateway deletes what it need not know any more."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from nats.aio.msg import Msg
from pydantic import ValidationError

from agent_service.bus.dead_letters import MOST_LETTERS, NatsDeadLetters
from agent_service.bus.topology import topology
from agent_service.history.plain import ok, warning, wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.service.machine import monotonic
from groundwork.telemetry.metrics import Instruments
from schemas import subjects
from schemas.status import Finding, GatewayPruned, GatewayStatus, PruneAsked

OLDEST_SERVER = (2, 14, 0)
SMALLEST_PAYLOAD = 1 << 20
ANSWER_WITHIN_S = 2.0


def server(link: NatsLink) -> Finding:
    text = f"nats-server {link.server_version} at {link.servers}"
    if tuple(map(int, link.server_version.split("."))) < OLDEST_SERVER:
        return wrong("nats", text, remedy="install nats-server 2.14 or newer")
    if link.max_payload < SMALLEST_PAYLOAD:
        remedy = f"set max_payload to {SMALLEST_PAYLOAD} on the server: larger results would be refused"
        return warning("nats", f"{text}, messages of at most {link.max_payload} bytes", remedy=remedy)
    return ok("nats", text)


async def jetstream(link: NatsLink) -> Finding:
    try:
        await link.ask_jetstream("INFO", timeout_s=ANSWER_WITHIN_S)
    except Failure as error:
        return wrong("jetstream", str(error), remedy="enable it: `jetstream {}` in the server's file")
    return ok("jetstream", "JetStream answers")


async def dead_letters(letters: NatsDeadLetters) -> Finding:
    try:
        waiting = [letter for letter in await letters.all() if not letter.settled]
    except Failure as error:
        return warning("dead letters", str(error), remedy="give this login the permission, or ask again later")
    if waiting:
        newest = waiting[-1].subject[:80]
        text = f"{len(waiting)} messages could not be handled, the newest of them on {newest}"
        return warning("dead letters", text, remedy="retry or discard each in the inbox")
    return ok("dead letters", "none is open")


async def gateway(troubles: "NatsTroubles") -> tuple[Finding, ...]:
    status = await troubles.status()
    if status is None:
        return (wrong("gateway", "no gateway reports its status", remedy="start the gateway"),)
    return status.findings


FLAW_WITHIN_S = 3.0
FRESH_S = 10.0
STATUS_WITHIN_S = 3.5
PRUNED_WITHIN_S = 10.0
BY_ITSELF = "a gateway that runs does it once an hour"


class NatsCallbacks:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def flaw(self, url: str) -> str:
        question = json.dumps({"url": url}).encode()
        try:
            told = json.loads(await self._link.request(subjects.CALLBACK, question, timeout_s=FLAW_WITHIN_S))
        except (Failure, ValueError):
            return ""
        flaw = told.get("flaw") if isinstance(told, dict) else None
        return flaw if isinstance(flaw, str) else ""


async def prune_rows(link: NatsLink, *, dry_run: bool) -> GatewayPruned:
    """Has the gateway delete what it need not know any more. What cannot be reached is told, not waited for."""
    question = PruneAsked(dry_run=dry_run).model_dump_json().encode()
    try:
        answer = await link.request(subjects.PRUNE, question, timeout_s=PRUNED_WITHIN_S)
        return GatewayPruned.model_validate_json(answer)
    except Failure as error:
        return GatewayPruned(rows={}, trouble=f"no gateway answers ({error}); {BY_ITSELF}")
    except ValidationError:
        why = "the gateway's answer cannot be read: it is of another version"
        return GatewayPruned(rows={}, trouble=f"{why}; {BY_ITSELF}")


class NatsTroubles:
    """Asks at most every few seconds, because the gateway asks its Ductile. Fills Troubles."""

    def __init__(self, link: NatsLink, *, fresh_s: float = FRESH_S) -> None:
        self._link = link
        self._fresh_s = fresh_s
        self._told: GatewayStatus | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        status = await self.status()
        if status is None or status.executor != executor:
            return ""
        waits = [call.why for call in status.waiting if (call.run_id, call.step) == (run_id, step)]
        return "; ".join(waits) or "; ".join(
            f"{found.name}: {found.text}" for found in status.findings if found.mark == "wrong"
        )

    async def status(self) -> GatewayStatus | None:
        async with self._asking:
            if monotonic() - self._asked_at > self._fresh_s:
                self._told = await self._ask()
                self._asked_at = monotonic()
            return self._told

    async def _ask(self) -> GatewayStatus | None:
        try:
            return together(await statuses(self._link, within_s=STATUS_WITHIN_S))
        except (Failure, ValidationError):
            return None


async def statuses(link: NatsLink, *, within_s: float) -> Sequence[GatewayStatus]:
    """Raises Failure where no gateway answers in time, and ValidationError for an answer that is no status."""
    told, broken = dict[str, GatewayStatus](), list[ValidationError]()

    def goes_on(answer: Msg) -> bool:
        try:
            status = GatewayStatus.model_validate_json(answer.data)
        except ValidationError as error:
            broken.extend([error] if answer.data else [])  # else the server says that none is there
            return False
        told[status.gateway] = status
        return len(told) < status.gateways

    try:
        await link.request(subjects.STATUS, b"", timeout_s=within_s, goes_on=goes_on)
    except TryAgain:
        if not told:
            raise
    if broken:
        raise broken[0]
    return tuple(told.values())


def together(told: Sequence[GatewayStatus]) -> GatewayStatus:
    first = told[0]
    findings = tuple(finding for status in told for finding in status.findings)
    waiting = tuple(call for status in told for call in status.waiting)
    return first.model_copy(update={"findings": findings, "waiting": waiting})


ASKED_WITHIN_S = 1.5
Info = Mapping[str, Any]
Levels = dict[str, tuple[str, str, Callable[[Info], float | None]]]


def _fill(info: Info) -> float | None:
    most = info["config"].get("max_bytes", -1)
    return float(info["state"]["bytes"] / most) if most > 0 else None


STREAMS: Levels = {
    "messages": ("Messages in a stream or bucket", "{message}", lambda info: info["state"]["messages"]),
    "size": ("Size of a stream or bucket", "By", lambda info: info["state"]["bytes"]),
    "fill": ("The part of its most bytes that it has", "1", _fill),
}
CONSUMERS: Levels = {
    "pending": ("Messages not delivered yet", "{message}", itemgetter("num_pending")),
    "ack_pending": ("Messages in hand", "{message}", itemgetter("num_ack_pending")),
    "redelivered": ("Messages in hand that were delivered before", "{message}", itemgetter("num_redelivered")),
}


def observe_bus(instruments: Instruments, link: NatsLink, *, shared: bool = False) -> None:
    wanted, letters = topology(shared=shared), NatsDeadLetters(link, most=MOST_LETTERS)
    streams = [stream.name for stream in wanted.streams]
    _observe(instruments, link, "stream", streams, STREAMS)
    _observe(instruments, link, "consumer", [f"{one.stream}.{one.name}" for one in wanted.consumers], CONSUMERS)

    async def unsettled() -> float:
        return sum(not letter.settled for letter in await letters.all())

    text = "Unsettled dead letters"
    instruments.level("agentic.dead_letters", text, unsettled, unit="{message}")


def _observe(instruments: Instruments, link: NatsLink, kind: str, names: Sequence[str], levels: Levels) -> None:
    """`names`: as JetStream is asked for them."""
    gauges = {
        name: instruments.gauge(f"agentic.{kind}.{name}", text, unit=unit, attributes=(f"agentic.{kind}",))
        for name, (text, unit, _) in levels.items()
    }

    async def read() -> None:
        asked = (link.ask_jetstream(f"{kind.upper()}.INFO.{name}", timeout_s=ASKED_WITHIN_S) for name in names)
        answers = zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        infos = {(name.rpartition(".")[2],): told for name, told in answers if not isinstance(told, BaseException)}
        for name, (_, _, level) in levels.items():
            found = {series: level(info) for series, info in infos.items()}
            gauges[name].show({series: value for series, value in found.items() if value is not None})

    instruments.observe(read, *gauges.values())
