"""The real gateway, a process to be killed, between a real bus and a Ductile under test, and what it leaves on disk."""

import contextlib
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ductile_gateway.store import FILE
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from schemas import keys
from schemas.events import ToolRequest, ToolResult
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.on_nats import a_bus, all_acknowledged, results, send
from tests.gateway.parts import a_request
from tests.gateway.served import Gateway
from tests.kit.cut_wire import Rules, wire
from tests.kit.waiting import until

AT_ONCE = 32
NONE: Mapping[str, DuctileUnderTest] = {}
BRISK = {"poll_first_s": 0.02, "poll_most_s": 0.2, "breaker_failures": 1000}
ACK_WAIT_S = 1.0
"""How soon the bus gives the requests of a gateway that was killed to the next one."""
CALL_ID = "agentic_call_id"
_ACCEPTED = "SELECT key FROM calls WHERE job_id IS NOT NULL"
_INTENDED = "SELECT key FROM calls"
_ANSWERED = "SELECT key FROM calls WHERE answer IS NOT NULL"


@dataclass(slots=True)
class Disk:
    """The gateway's own file, as another process sees it."""

    store: Path

    def accepted(self) -> frozenset[str]:
        """The calls whose job is known."""
        return self._keys(_ACCEPTED)

    def intended(self) -> frozenset[str]:
        """The calls of which the gateway knows at all."""
        return self._keys(_INTENDED)

    def answered(self) -> frozenset[str]:
        """The calls whose result is written down."""
        return self._keys(_ANSWERED)

    def _keys(self, statement: str) -> frozenset[str]:
        path = self.store / FILE
        if not path.exists():
            return frozenset()
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return frozenset(key for (key,) in connection.execute(statement))


@dataclass(slots=True)
class House:
    """One store, one bus, one Ductile; gateways come and go. `link` is the test's own, to the bus."""

    gateway: Gateway
    disk: Disk
    link: NatsLink
    ductile: DuctileUnderTest
    asked: dict[str, ToolRequest] = field(default_factory=dict)

    @asynccontextmanager
    async def living(self) -> AsyncIterator["subprocess.Popen[bytes]"]:
        """A gateway that is at work. It is killed at the end, if it was not before."""
        starts = self.gateway.starts()
        with self.gateway.serving() as process:
            await until(lambda: self.gateway.starts() > starts or process.poll() is not None, within_s=30)
            assert process.poll() is None, self.gateway.log.read_text()[-2000:]
            yield process

    async def ask(
        self, command: str, payload: dict[str, Any], *, step: int, attempt: int = 1, tool: str = "probe"
    ) -> str:
        """The key of the call."""
        request = a_request(command, payload, tool=tool, step=step, attempt=attempt)
        key = keys.call(request.run_id, request.step, request.tool, request.attempt)
        self.asked[key] = request
        await send(self.link, request, tool)
        return key

    async def results(self) -> list[ToolResult]:
        """All that the bus stores, in order."""
        return await results(self.link)

    async def has_results(self, number: int) -> bool:
        """Whether the bus stores so many."""
        return len(await self.results()) == number

    async def _settled(self) -> bool:
        # a request that was stored just now may not be counted yet among those that wait
        return await all_acknowledged(self.link) and len(await self.results()) >= len(self.asked)

    async def answers(self, *, within_s: float = 30) -> dict[str, ToolResult]:
        """The one result of each call, by its key, once every request has been settled."""
        await until(self._settled, within_s=within_s)
        found = await self.results()
        told = {keys.call(result.run_id, result.step, result.tool, result.attempt or 1): result for result in found}
        assert len(found) == len(told), "a call has two results"
        assert told.keys() == self.asked.keys(), "a call has no result, or one has that nobody asked for"
        return told

    def jobs(self) -> dict[str, set[str]]:
        """The jobs that have run, by the call that they were made for."""
        found: dict[str, set[str]] = {key: set() for key in self.asked}
        for execution in self.ductile.executions:
            if CALL_ID in execution.payload:
                found[execution.payload[CALL_ID]].add(execution.job_id)
        return found


def kill(process: "subprocess.Popen[bytes]") -> None:
    """As a crash does."""
    process.kill()
    process.wait()


def ending(result: ToolResult) -> str:
    """The status, or the class of the error."""
    return result.error.error_class if result.error else result.status


@asynccontextmanager
async def house(
    folder: Path,
    ductile: DuctileUnderTest,
    *,
    beside: Mapping[str, DuctileUnderTest] = NONE,
    on_the_way_to_the_bus: Rules | None = None,
    on_the_way_to_ductile: Rules | None = None,
    telemetry: str | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """A bus, and a gateway that is not started yet. Where there are rules, it hangs on a wire that has them.

    beside: further Ductiles, by name. telemetry: the address of a receiver. settings: those of the section `ductile` of
    the gateway that are not as below.
    """
    async with AsyncExitStack() as held:
        nats = await held.enter_async_context(EmbeddedNats(folder / "nats", sync_interval="1s"))
        link = await connect(NatsSettings(urls=(nats.url,)))
        held.push_async_callback(link.close)
        await a_bus(link, ack_wait=ACK_WAIT_S)
        bus_port = await _near_end(held, nats.url, on_the_way_to_the_bus)
        ductile_port = await _near_end(held, ductile.url, on_the_way_to_ductile)
        talk = {"url": f"http://127.0.0.1:{ductile_port}", "token": ductile.token, "in_flight": AT_ONCE, **BRISK}
        gateway = Gateway(
            folder,
            nats.url_at(bus_port),
            runner="ductile",
            ductile=talk | settings,
            ductiles={name: BRISK | {"url": one.url, "token": one.token} for name, one in beside.items()},
            tools={"probe": {"concurrency": AT_ONCE}} | {f"{name}_probe": {} for name in beside},
            slots=2 * AT_ONCE,
            telemetry={"endpoint": telemetry},
        )
        yield House(gateway, Disk(folder / "store"), link, ductile)


async def _near_end(held: AsyncExitStack, url: str, rules: Rules | None) -> int:
    """The port to speak to, of the wire if there is one."""
    port = urlsplit(url).port or 0
    return await held.enter_async_context(wire(port, rules)) if rules else port
