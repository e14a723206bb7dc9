"""The real gateway as a process, between a real bus and a Ductile under test."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ductile_gateway.calls.call import CALL_ID
from ductile_gateway.store import FILE
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import keys
from schemas.events import ToolRequest, ToolResult
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import a_request
from tests.gateway.served import Gateway, a_bus, all_acknowledged, ending, results, send
from tests.kit.cut_wire import Rule, wire
from tests.kit.processes import Service
from tests.kit.stack import linked
from tests.kit.waiting import until

AT_ONCE = 32
KEYS = "SELECT json_extract(head, '$.key') FROM rows WHERE kind = 'call'"
BRISK = {"poll_most_s": 0.2}
ACK_WAIT_S = 2.0
"""Redelivery time of a killed gateway's requests."""


@dataclass(slots=True)
class Served:
    """One store, one bus, one Ductile; gateways come and go. `link`: the test's own."""

    gateway: Gateway
    store: Path
    link: NatsLink
    ductile: DuctileUnderTest
    asked: dict[str, ToolRequest] = field(default_factory=dict)

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Service]:
        """A running gateway, killed at the end."""
        starts = self.gateway.starts()
        with self.gateway.serving() as process:
            await until(lambda: self.gateway.starts() > starts or not process.pid, within_s=30)
            assert process.pid, self.gateway.log.read_text()[-2000:]
            yield process

    async def ask(self, command: str, payload: dict[str, Any], *, step: int, tool: str = "probe", **more: Any) -> str:
        request = a_request(command, payload, tool=tool, step=step, **more)
        key = keys.call(request.run_id, request.step, request.tool, request.attempt)
        self.asked[key] = request
        await send(self.link, request, tool)
        return key

    def known(self) -> frozenset[str]:
        """Calls in the gateway's ledger file."""
        path = self.store / FILE
        if not path.exists():
            return frozenset()
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return frozenset(key for (key,) in connection.execute(KEYS))

    async def results(self) -> list[ToolResult]:
        return await results(self.link)

    async def has_results(self, number: int) -> bool:
        return len(await self.results()) == number

    async def answers(self) -> dict[str, ToolResult]:
        """Results by call, once every request is settled."""

        async def settled() -> bool:
            # a request that was stored just now may not be counted yet among those that wait
            return await all_acknowledged(self.link) and len(await self.results()) >= len(self.asked)

        await until(settled, within_s=30)
        found = await self.results()
        told = {keys.call(result.run_id, result.step, result.tool, result.attempt or 1): result for result in found}
        assert len(found) == len(told), "a call has two results"
        assert told.keys() == self.asked.keys(), "a call has no result, or one has that nobody asked for"
        return told

    async def endings(self) -> dict[str, tuple[str, int]]:
        """Ending of each call, and its number of jobs."""
        answers = await self.answers()
        ran = {(one.payload.get(CALL_ID), one.job_id) for one in self.ductile.executions}
        return {key: (ending(result), [call for call, _ in ran].count(key)) for key, result in answers.items()}


@asynccontextmanager
async def served(
    folder: Path,
    ductile: DuctileUnderTest,
    *,
    beside: Mapping[str, DuctileUnderTest] | None = None,
    to_ductile: Rule | None = None,
    telemetry: str | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """A bus, and a gateway that is not started yet. to_ductile: rule of its wire. beside: further Ductiles, by name.
    telemetry: address of a receiver. settings: of the section `ductile`."""
    beside = beside or {}
    async with AsyncExitStack() as held:
        nats = await held.enter_async_context(EmbeddedNats(folder / "nats", sync_interval="1s"))
        link = await held.enter_async_context(linked(nats.url))
        await a_bus(link, ack_wait=ACK_WAIT_S)
        port = urlsplit(ductile.url).port or 0
        port = await held.enter_async_context(wire(port, to_ductile)) if to_ductile else port
        talk = {"url": f"http://127.0.0.1:{port}", "token": ductile.token, **BRISK}
        gateway = Gateway(
            folder,
            nats.url,
            runner="ductile",
            ductile=talk | settings,
            ductiles={name: BRISK | {"url": one.url, "token": one.token} for name, one in beside.items()},
            tools={"probe": {"concurrency": AT_ONCE}} | {f"{name}_probe": {} for name in beside},
            slots=2 * AT_ONCE,
            telemetry={"endpoint": telemetry},
        )
        yield Served(gateway, folder / "store", link, ductile)
