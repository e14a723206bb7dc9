"""Health of the bus: findings about the server and its dead letters, and levels of streams and consumers as metrics."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from agent_service.bus.dead_letters import NatsDeadLetters
from agent_service.bus.topology import topology
from agent_service.history.text import ok, warning, wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from groundwork.telemetry.metrics import Instruments
from schemas.status import Finding, counted

OLDEST_SERVER = (2, 14, 0)
SMALLEST_PAYLOAD = 1 << 20
ANSWER_WITHIN_S = 2.0
LEVELS_WITHIN_S = 1.5

Info = Mapping[str, Any]
Levels = dict[str, tuple[str, str, Callable[[Info], float | None]]]


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
    except TryAgain as error:
        remedy = "wait for the servers, or enable it: `jetstream {}` in the server's file"
        return wrong("jetstream", str(error), remedy=remedy)
    except Failure as error:
        return wrong("jetstream", str(error), remedy="correct that at the server, or give this login the permission")
    return ok("jetstream", "JetStream answers")


async def dead_letters(letters: NatsDeadLetters) -> Finding:
    try:
        waiting = [letter for letter in await letters.all() if not letter.settled]
    except Failure as error:
        return warning("dead letters", str(error), remedy="give this login the permission, or ask again later")
    if waiting:
        newest = waiting[-1].subject[:80]
        text = f"{counted(len(waiting), 'messages')} could not be handled, the newest on {newest}"
        return warning("dead letters", text, remedy="retry or drop each: `agentic inbox` names the commands")
    return ok("dead letters", "none is open")


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
    expected, letters = topology(shared=shared), NatsDeadLetters(link)
    _observe(instruments, link, "stream", [one.stream for one in expected if not one.consumer], STREAMS)
    consumers = [f"{one.stream}.{one.consumer}" for one in expected if one.consumer]
    _observe(instruments, link, "consumer", consumers, CONSUMERS)

    async def open_or_changed() -> float:
        return sum(not letter.settled for letter in await letters.all())

    instruments.levels(("agentic.dead_letters", "Unsettled dead letters", "{message}", open_or_changed))


def _observe(instruments: Instruments, link: NatsLink, kind: str, names: Sequence[str], levels: Levels) -> None:
    """`names`: subjects of the JetStream API after `<KIND>.INFO.`."""
    gauges = {
        name: instruments.gauge(f"agentic.{kind}.{name}", text, f"agentic.{kind}", unit=unit)
        for name, (text, unit, _) in levels.items()
    }

    async def read() -> None:
        asked = (link.ask_jetstream(f"{kind.upper()}.INFO.{name}", timeout_s=LEVELS_WITHIN_S) for name in names)
        answers = zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        infos = {(name.rpartition(".")[2],): info for name, info in answers if not isinstance(info, BaseException)}
        for name, (_, _, level) in levels.items():
            found = {series: level(info) for series, info in infos.items()}
            gauges[name].show({series: value for series, value in found.items() if value is not None})

    instruments.observe(read, *gauges.values())
