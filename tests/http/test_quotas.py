"""What one token may ask for: beyond it 429 with which quota and until when, nothing stored; others notice nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from agent_service.admission.callers import QuotaSettings, TokenSettings
from tests.http.house import House, known_token, open_house, secret

pytestmark = pytest.mark.attack(59)

GOAL = {"goal": "Find the answer."}


@asynccontextmanager
async def opened(folder: Path, **quota: Any) -> AsyncIterator[tuple[House, httpx2.AsyncClient]]:
    """An agent whose token `waker` has that quota, and a client that calls with it."""
    waker = TokenSettings(
        name="waker", scopes=frozenset({"wake"}), token=SecretStr(secret("waker")), quota=QuotaSettings(**quota)
    )
    async with open_house(folder, tokens=(waker, known_token("admin"))) as house, house.client("waker") as client:
        yield house, client


async def wakes(client: httpx2.AsyncClient, number: int, **more: Any) -> list[int]:
    return [(await client.post("/v1/wake", json=GOAL | more)).status_code for _ in range(number)]


async def test_wakes_within_a_minute(tmp_path: Path) -> None:
    async with opened(tmp_path, wakes_per_minute=3) as (house, client):
        assert await wakes(client, 4) == [202, 202, 202, 429]
        refused = await client.post("/v1/wake", json=GOAL)
        assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("over_quota", "20")
        assert "token waker has asked for 3 wakes within a minute: its quota wakes_per_minute" in refused.text
        assert await house.how_many() == 3
        house.clock.advance(seconds=20)
        assert await wakes(client, 2) == [202, 429]
        async with house.client("admin") as other:
            assert await wakes(other, 5) == [202] * 5


async def test_runs_that_have_not_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, open_runs=2) as (house, client):
        first = (await client.post("/v1/wake", json=GOAL)).json()["run_id"]
        assert await wakes(client, 2) == [202, 429]
        async with house.client("admin") as admin:
            await admin.post(f"/v1/runs/{first}/cancel", json={})
        assert await wakes(client, 2) == [202, 429]


async def test_bytes_of_a_day_also_after_a_restart(tmp_path: Path) -> None:
    large = {"context": {"text": "x" * 5000}}
    async with opened(tmp_path, bytes_per_day=9000) as (_, client):
        assert await wakes(client, 3, **large) == [202, 202, 429]
    async with opened(tmp_path, bytes_per_day=9000) as (_, client):
        refused = await client.post("/v1/wake", json=GOAL)
        assert (refused.status_code, "bytes_per_day" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) <= 12 * 3600


async def test_a_wake_that_comes_again_is_the_same_run_whatever_is_used_up(tmp_path: Path) -> None:
    async with opened(tmp_path, open_runs=1) as (house, client):
        assert await wakes(client, 3, wake_id="w-1") == [202, 202, 202]
        assert await house.how_many() == 1


async def test_a_burst_of_wakes_opens_no_more_runs_than_the_quota(tmp_path: Path) -> None:

    async with opened(tmp_path, open_runs=10) as (house, client):
        answers = await asyncio.gather(*(client.post("/v1/wake", json=GOAL) for _ in range(50)))
        assert [answer.status_code for answer in answers].count(202) == 10
        assert await house.how_many() == 10
