"""What the service says of itself."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import Response

from agent_service.api.app import create_app
from agent_service.api.handlers.service import ServiceCalls
from agent_service.settings import AgentSettings
from tests.http.house import House, no_metrics


async def test_ready_is_said_of_each_thing_that_is_needed(house: House) -> None:
    async with house.client(None) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    checks = dict.fromkeys(("bus", "store", "skills", "halt"), "ok")
    assert answer.json() == {"ready": True, "checks": checks, "store": ""}


@pytest.mark.parametrize("what", ["bus", "store", "skills"])
async def test_what_is_not_ready_is_named_with_what_is_wrong(house: House, what: str) -> None:
    house.wrong[what] = "it is away"
    async with house.client(None) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["ready"] is False
    assert answer.json()["checks"][what] == "it is away"
    assert list(answer.json()["checks"].values()).count("ok") == 3


async def test_a_check_that_hangs_is_not_waited_for(house: House) -> None:
    async def hanging() -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}

    response = Response()
    answer = await ServiceCalls(house.app, hanging, store="", metrics=no_metrics, ready_within_s=0.01).readyz(response)
    assert (response.status_code, answer.ready) == (503, False)


async def test_the_docs_page_needs_nothing_from_elsewhere_and_no_script(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "POST /v1/wake" in answer.text
    assert "http://" not in answer.text
    assert "https://" not in re.sub(r"<pre>.*?</pre>", "", answer.text, flags=re.DOTALL)
    assert "<script" not in answer.text
    assert "src=" not in answer.text


async def test_a_fault_of_ours_says_nothing_of_itself(house: House, tmp_path: Path) -> None:
    async def broken() -> Mapping[str, str]:
        raise RuntimeError(f"secret at {tmp_path}")

    looking: dict[str, Any] = {"operations": house.operations, "streams": house.streams, "metrics": no_metrics}
    app = create_app(house.desk, house.files, broken, AgentSettings(), **looking)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "broken")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
