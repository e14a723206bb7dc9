"""How full the bus is, and how far its consumers are: asked of JetStream when somebody reads."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent_service.bus.dead_letters import MOST_LETTERS, NatsDeadLetters
from agent_service.bus.topology import topology
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Attributes, Gauge, Instruments

ASKED_WITHIN_S = 1.5
STREAM, CONSUMER = ("agentic.stream",), ("agentic.consumer",)


class BusLevels:
    def __init__(self, instruments: Instruments, link: NatsLink, *, shared: bool = False) -> None:
        self._link = link
        self._dead_letters = NatsDeadLetters(link, most=MOST_LETTERS)
        wanted = topology(shared=shared)
        self._streams = tuple(stream.name for stream in wanted.all_streams())
        self._consumers = tuple((consumer.stream, consumer.name) for consumer in wanted.consumers)
        self._of_streams = {
            "messages": instruments.gauge(
                "agentic.stream.messages", "Messages in a stream or bucket", unit="{message}", attributes=STREAM
            ),
            "bytes": instruments.gauge(
                "agentic.stream.size", "Size of a stream or bucket", unit="By", attributes=STREAM
            ),
            "fill": instruments.gauge(
                "agentic.stream.fill", "The part of its most bytes that it has", unit="1", attributes=STREAM
            ),
        }
        self._of_consumers = {
            "num_pending": instruments.gauge(
                "agentic.consumer.pending", "Messages not delivered yet", unit="{message}", attributes=CONSUMER
            ),
            "num_ack_pending": instruments.gauge(
                "agentic.consumer.ack_pending", "Messages in hand", unit="{message}", attributes=CONSUMER
            ),
            "num_redelivered": instruments.gauge(
                "agentic.consumer.redelivered",
                "Messages in hand that were delivered before",
                unit="{message}",
                attributes=CONSUMER,
            ),
        }
        self._letters = instruments.gauge(
            "agentic.dead_letters", "Dead letters that nobody has settled", unit="{message}"
        )
        instruments.observe(self._read_streams, *self._of_streams.values())
        instruments.observe(self._read_consumers, *self._of_consumers.values())
        instruments.observe(self._read_letters, self._letters)

    async def _read_streams(self) -> None:
        """Raises TryAgain, as the others do."""
        infos = await self._all(f"STREAM.INFO.{name}" for name in self._streams)
        _show(self._of_streams, {(info["config"]["name"],): _level(info) for info in infos if "state" in info})

    async def _read_consumers(self) -> None:
        infos = await self._all(f"CONSUMER.INFO.{stream}.{name}" for stream, name in self._consumers)
        _show(self._of_consumers, {(info["name"],): info for info in infos if "num_pending" in info})

    async def _read_letters(self) -> None:
        self._letters.show({(): sum(not letter.settled for letter in await self._dead_letters.all())})

    async def _all(self, questions: Iterable[str]) -> list[dict[str, Any]]:
        return await asyncio.gather(*map(self._asked, questions))

    async def _asked(self, what: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._link.request(f"$JS.API.{what}", b"", timeout_s=ASKED_WITHIN_S))
        return answer


def _level(info: Mapping[str, Any]) -> dict[str, float]:
    state, most = info["state"], info["config"].get("max_bytes", -1)
    level = {"messages": state["messages"], "bytes": state["bytes"]}
    return level | ({"fill": state["bytes"] / most} if most > 0 else {})


def _show(gauges: Mapping[str, Gauge], levels: Mapping[Attributes, Mapping[str, float]]) -> None:
    for field, gauge in gauges.items():
        gauge.show({series: level[field] for series, level in levels.items() if field in level})
