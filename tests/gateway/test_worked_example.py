"""RFC-103's worked example with real plugins: a page is fetched, and its artifact is handed to the next tools."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import subjects
from schemas.events import ToolRequest, ToolResult
from tests.gateway.on_nats import a_bus, results, send
from tests.gateway.parts import RUN, a_request
from tests.gateway.served import ROOT, Gateway
from tests.kit.waiting import until

PAGE = "<html><head><title>Example</title></head><body>" + "<p>Words about a thing worth reading.</p>" * 400


async def a_page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n\r\n"
    writer.write((head + PAGE).encode())
    await writer.drain()
    writer.close()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with await asyncio.start_server(a_page, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def result_of(link: NatsLink, request: ToolRequest) -> ToolResult:
    async def answered() -> bool:
        return any(result.step == request.step for result in await results(link))

    await send(link, request, request.tool)
    await until(answered, within_s=30)
    return (await results(link))[-1]


async def test_a_page_is_fetched_and_a_critique_of_it_is_written(
    link: NatsLink, nats_server: EmbeddedNats, tmp_path: Path, address: str
) -> None:
    await a_bus(link)
    plugins = {
        "folders": [str(ROOT / "deploy" / "ductile" / "plugins")],
        "config": {"fetch": {"allow_private": True}},
    }
    with Gateway(tmp_path, nats_server.url, plugins=plugins).serving():
        fetched = await result_of(link, a_request(tool="fetch", payload={"url": address}))
        assert fetched.result is not None
        assert fetched.result.artifact_path == "artifacts/fetch-01.md"
        assert (fetched.result.excerpt or "").endswith("which goes on at line 457, character 12]")
        argument = {"artifact": fetched.result.artifact_path}
        critique = await result_of(link, a_request(tool="text-report", payload=argument, step=2))
        read = await result_of(link, a_request("read", argument, tool="artifact", step=3))
    assert read.result is not None
    assert read.result.artifact_path is None
    told = read.result.model_dump()
    assert "\nWords about a thing worth reading.\n" in told["summary"]
    assert told["output"]["next"] == {"from_line": 585}
    assert critique.result is not None
    assert critique.result.artifact_path == "artifacts/critique.md"
    stored = await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).get(f"{RUN}/critique.md")
    assert stored.decode().startswith(critique.result.excerpt or "nothing")
