"""The real gateway beside Ductiles: one that is away, a kill -9 after the jobs of calls were made and before their ids
arrive, and the spans of a call, all below the one that published the request."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_service.cli.doctor.bus import gateway as doctor
from agent_service.settings import AgentSettings
from agent_service.workbench.embedded_nats import EmbeddedNats
from ductile_gateway.calls.call import CALL_ID
from ductile_gateway.store import FILE
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.telemetry.span import span_id
from schemas import keys, subjects
from schemas.catalog import Catalog
from schemas.events import ToolRequest, ToolResult
from schemas.status import Finding
from tests.ductile.fake import FakeDuctile
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import RUN, TRACE, a_request, ending
from tests.gateway.served import Gateway, a_bus, all_acknowledged, results, send
from tests.kit.cut_wire import Rule, Way, wire
from tests.kit.otlp import receiving
from tests.kit.processes import Service
from tests.kit.stack import linked
from tests.kit.waiting import until

AT_ONCE = 32
KEYS = "SELECT json_extract(head, '$.key') FROM rows WHERE kind = 'call'"
BRISK = {"poll_most_s": 0.2}


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
        path = self.store / FILE
        if not path.exists():
            return frozenset()
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return frozenset(key for (key,) in connection.execute(KEYS))

    async def results(self) -> list[ToolResult]:
        return await results(self.link)

    async def answers(self) -> dict[str, ToolResult]:
        """Results by call, once every request is settled."""

        async def settled() -> bool:
            # a request that was stored just now may not be counted yet among those that wait
            return await all_acknowledged(self.link) and len(await self.results()) >= len(self.asked)

        await until(settled, within_s=30)
        found = await self.results()
        told = {keys.call(result.run_id, result.step, result.tool, result.attempt or 1): result for result in found}
        assert len(found) == len(told), "a call has two results"
        assert told.keys() == self.asked.keys(), "a call has no result, or one that was not asked for"
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
        await a_bus(link)
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


@pytest.fixture
async def home(ductile: DuctileUnderTest, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, ductile) as opened:
        yield opened


async def checks(link: NatsLink) -> dict[str, Finding]:
    return {check.name: check async for check in doctor(link, AgentSettings())}


def marked(link: NatsLink, name: str, mark: str) -> Callable[[], Coroutine[Any, Any, bool]]:
    async def look() -> bool:
        found = (await checks(link)).get(name)
        return found is not None and found.mark == mark

    return look


async def catalog(link: NatsLink) -> list[str] | None:
    """Names of the tools on offer; None without an answer."""
    try:
        answer = await link.request(subjects.CATALOG, b"", timeouts_s=(1,))
    except TryAgain:
        return None
    return [tool.name for tool in Catalog.model_validate_json(answer).tools]


async def test_a_gateway_says_what_it_waits_for_and_offers_nothing_until_its_ductile_is_there(home: Served) -> None:
    home.ductile.kill()
    key = await home.ask("note", {}, step=1)
    with home.gateway.serving():
        await until(marked(home.link, "gateway", "wrong"), within_s=20)
        assert (await checks(home.link))["ductile"].mark == "wrong"
        assert await catalog(home.link) is None
        home.ductile.start()
        assert (await home.answers())[key].status == "ok"
        await until(marked(home.link, "gateway", "ok"), within_s=10)
        found = await checks(home.link)
        well = ("gateway", "ductile", "ductile token", "tools", "results")
        assert [name for name in well if found[name].mark != "ok"] == []
        assert found["trust"].mark == "warning", "its tools do not say whose words they bring"
        assert home.ductile.url.rpartition(":")[2] in found["ductile"].text


async def test_one_of_several_that_is_away_holds_up_no_call_of_the_others_and_its_own_wait_for_it(
    fake: FakeDuctile, ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    async with served(tmp_path, fake, beside={"work": ductile}, refresh_s=1) as both, both.living():
        await until(lambda: catalog(both.link), lambda names: names == ["probe", "work_probe"])
        ductile.kill()
        await both.ask("note", {"where": "there"}, step=1, tool="work_probe")
        await both.ask("note", {"where": "here"}, step=2)
        (answered,) = await until(both.results)
        assert answered.tool == "probe"
        await until(marked(both.link, "ductile work", "wrong"), within_s=15)
        found = await checks(both.link)
        assert [found[name].mark for name in ("ductile", "ductile token", "tools")] == ["ok"] * 3
        assert "gateway.ductiles.work.url" in found["ductile work"].remedy
        ductile.start()
        assert {ending(result) for result in (await both.answers()).values()} == {"ok"}
        await until(marked(both.link, "ductile work token", "ok"), within_s=15)
    assert [execution.payload["where"] for execution in both.ductile.executions] == ["here"]
    assert [execution.payload["where"] for execution in ductile.executions] == ["there"]


QUIET: dict[str, Any] = {"do": "say", "says": {}}
CALLS = {
    "silent": ("handle", QUIET, ("in_doubt", 1)),
    "shown": ("handle", {}, ("ok", 1)),
    "read": ("look", QUIET, ("ok", 2)),
    "idempotent": ("note", QUIET, ("ok", 2)),
}
"""Command and payload; ending of the call, and its number of jobs: of a write whose plugin hides its call id, one whose
plugin shows it, a read, and an idempotent write."""


async def test_after_a_kill_no_write_starts_twice_and_each_doubt_is_told(
    tmp_path: Path, ductile: DuctileUnderTest
) -> None:
    way, asked = Way(held=rb"HTTP/1\.1 202"), dict[str, str]()
    async with served(tmp_path, ductile, to_ductile=way.rule, idempotent=["probe/note"], events=False) as home:
        async with home.living() as process:
            for step, (kind, (command, payload, _)) in enumerate(CALLS.items(), start=1):
                asked[kind] = await home.ask(command, payload, step=step)
            await until(lambda: way.seen == len(home.known()) == len(CALLS))
            process.kill()
            way.end()
        async with home.living():
            endings = await home.endings()
    assert {kind: endings[key] for kind, key in asked.items()} == {kind: ending for kind, (*_, ending) in CALLS.items()}


async def test_a_call_is_told_as_its_request_to_a_ductile_and_its_job(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    with receiving() as otlp:
        async with served(tmp_path, ductile, telemetry=otlp.url) as home, home.living():
            await home.ask("look", {"do": "answer"}, step=1)
            await home.answers()
            await until(lambda: len(otlp.spans) == 2, within_s=30)
    spans = {span.name: span for span in otlp.trace(TRACE).spans}
    assert len(spans) == 2
    job, request = spans["job probe look"], spans["POST /plugin/probe/look"]
    (execution,) = ductile.executions
    assert job.attributes["agentic.job_id"] == request.attributes["agentic.job_id"] == execution.job_id
    assert (request.kind, request.attributes["http.response.status_code"]) == ("client", 202)
    assert {span.parent_id for span in spans.values()} == {span_id(keys.request(RUN, 1, 1))}
    assert all(span.error is None for span in spans.values())
