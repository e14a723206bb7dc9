"""Lists, journals and files over the bus: the same as over HTTP, in messages of bounded size."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from agent_service.api.micro_reading import MOST_BYTES, serve_reading
from agent_service.api.micro_service import serve_on_bus
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.http.house import House
from tests.kit.runs import run_id, whole_run


@pytest.fixture
async def caller(
    request: pytest.FixtureRequest, nats_server: EmbeddedNats, link: NatsLink, house: House
) -> AsyncIterator[Client]:
    """Somebody on the bus, while the service answers there; its answers may be bounded to so many bytes."""
    service = await serve_on_bus(link, house.desk, house.signing, house.switch)
    await serve_reading(
        service, house.desk, house.files, house.operations.tools, most_bytes=getattr(request, "param", MOST_BYTES)
    )
    caller = await nats.connect(nats_server.url)
    yield caller
    await caller.close()
    await service.stop()


async def ask(caller: Client, endpoint: str, **body: Any) -> dict[str, Any]:
    answer = await caller.request(f"{subjects.SERVICE_AGENT}.{endpoint}", json.dumps(body).encode(), timeout=5)
    told: dict[str, Any] = json.loads(answer.data)
    return told


async def test_runs_entries_and_files_are_those_of_the_http_api(caller: Client, house: House) -> None:
    run = await house.play(whole_run())
    async with house.client() as client:
        assert (await client.get("/v1/runs", params={"limit": 1})).json() == await ask(caller, "runs", limit=1)
        entries = await ask(caller, "entries", run_id=run, after=2)
        assert entries.pop("status") == "done"
        assert (await client.get(f"/v1/runs/{run}/entries", params={"after": 2})).json() == entries
        assert (await client.get(f"/v1/runs/{run}/workspace")).json() == await ask(caller, "files", run_id=run)


@pytest.mark.parametrize("caller", [1], indirect=True)
async def test_a_journal_that_one_message_does_not_hold_is_told_in_several(caller: Client, house: House) -> None:
    run = await house.play(whole_run())
    told: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await ask(caller, "entries", run_id=run, after=after)
        assert len(page["entries"]) == 1
        told, after = told + [entry["seq"] for entry in page["entries"]], page["next_after"]
    assert told == list(range(1, (await house.state(run)).version + 1))


@pytest.mark.parametrize("caller", [8], indirect=True)
async def test_a_file_comes_in_pieces(caller: Client, house: House) -> None:
    run = await house.play(whole_run())
    assert not house.workspace.write([(run, {"plan.md": b"find it, say it"})])
    pieces = [await ask(caller, "file", run_id=run, path="plan.md", offset=offset) for offset in (0, 8)]
    assert b"".join(base64.b64decode(piece["content"]) for piece in pieces) == b"find it, say it"
    assert {piece["size"] for piece in pieces} == {15}


@pytest.mark.parametrize("asked", [{"endpoint": "entries"}, {"endpoint": "files"}, {"endpoint": "file", "path": "x"}])
async def test_what_there_is_none_of_is_refused_as_over_http(caller: Client, asked: dict[str, str]) -> None:
    refused = await ask(caller, asked.pop("endpoint"), run_id=run_id(7), **asked)
    assert refused["error"]["code"] in ("unknown_run", "no_such_file")
