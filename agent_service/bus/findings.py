"""Checks of the bus that change nothing, for `agentic doctor` and the agent's own health; how full streams are."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from agent_service.bus.dead_letters import MOST_LETTERS, NatsDeadLetters
from agent_service.bus.gateway import NatsTroubles
from agent_service.bus.topology import topology
from agent_service.history.plain import ok, warning, wrong
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from groundwork.telemetry.metrics import Attributes, Gauge, Instruments
from schemas.status import Finding

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
        return warning("dead letters", text, remedy="see `agentic dlq ls`, then retry or drop each")
    return ok("dead letters", "there are none that wait for anybody")


async def gateway(troubles: NatsTroubles) -> tuple[Finding, ...]:
    status = await troubles.status()
    if status is None:
        return (wrong("gateway", "no gateway says how it is", remedy="start `ductile-gateway serve`"),)
    return status.findings


ASKED_WITHIN_S = 1.5
STREAM, CONSUMER = ("agentic.stream",), ("agentic.consumer",)
_OF_STREAMS = {
    "messages": ("messages", "Messages in a stream or bucket", "{message}"),
    "bytes": ("size", "Size of a stream or bucket", "By"),
    "fill": ("fill", "The part of its most bytes that it has", "1"),
}
_OF_CONSUMERS = {
    "num_pending": ("pending", "Messages not delivered yet"),
    "num_ack_pending": ("ack_pending", "Messages in hand"),
    "num_redelivered": ("redelivered", "Messages in hand that were delivered before"),
}


class BusLevels:
    def __init__(self, instruments: Instruments, link: NatsLink, *, shared: bool = False) -> None:
        self._link = link
        letters = NatsDeadLetters(link, most=MOST_LETTERS)
        wanted = topology(shared=shared)
        self._streams = tuple(stream.name for stream in wanted.streams)
        self._consumers = tuple((consumer.stream, consumer.name) for consumer in wanted.consumers)
        self._of_streams = {
            told: instruments.gauge(f"agentic.stream.{name}", text, unit=unit, attributes=STREAM)
            for told, (name, text, unit) in _OF_STREAMS.items()
        }
        self._of_consumers = {
            told: instruments.gauge(f"agentic.consumer.{name}", text, unit="{message}", attributes=CONSUMER)
            for told, (name, text) in _OF_CONSUMERS.items()
        }
        instruments.observe(self._read_streams, *self._of_streams.values())
        instruments.observe(self._read_consumers, *self._of_consumers.values())

        async def unsettled() -> float:
            return sum(not letter.settled for letter in await letters.all())

        text = "Dead letters that nobody has settled"
        instruments.level("agentic.dead_letters", text, unsettled, unit="{message}")

    async def _read_streams(self) -> None:
        infos = await self._all(f"STREAM.INFO.{name}" for name in self._streams)
        _show(self._of_streams, {(info["config"]["name"],): _level(info) for info in infos})

    async def _read_consumers(self) -> None:
        infos = await self._all(f"CONSUMER.INFO.{stream}.{name}" for stream, name in self._consumers)
        _show(self._of_consumers, {(info["name"],): info for info in infos})

    async def _all(self, questions: Iterable[str]) -> list[dict[str, Any]]:
        asked = (self._link.ask_jetstream(one, timeout_s=ASKED_WITHIN_S) for one in questions)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer for answer in answers if not isinstance(answer, BaseException)]


def _level(info: Mapping[str, Any]) -> dict[str, float]:
    state, most = info["state"], info["config"].get("max_bytes", -1)
    level = {"messages": state["messages"], "bytes": state["bytes"]}
    return level | ({"fill": state["bytes"] / most} if most > 0 else {})


def _show(gauges: Mapping[str, Gauge], levels: Mapping[Attributes, Mapping[str, float]]) -> None:
    for field, gauge in gauges.items():
        gauge.show({series: level[field] for series, level in levels.items() if field in level})
