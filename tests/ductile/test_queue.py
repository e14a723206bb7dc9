"""How much waits in Ductile, and the calls that then wait outside."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from ductile_gateway.calls.admission import QUEUE_FRESH_FOR, QueueLimit
from ductile_gateway.calls.call import NeverStarted
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.settings import DuctileSettings
from groundwork.service.errors import TryAgain
from tests.ductile.fake import FakeDuctile, held
from tests.ductile.runner_house import a_call, gateway, outcome
from tests.kit.waiting import until

SETTINGS = DuctileSettings.model_validate({"url": "http://localhost:1", "token": "t"})


class House:
    """A queue whose depth is told by `answer`; `asked` is how often it was asked for, the time is ours."""

    def __init__(self, answer: httpx2.Response | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    async def told(self, _: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def holds(self, depth: object) -> None:
        self.answer = httpx2.Response(200, json={"queue_depth": depth})
        self.time += QUEUE_FRESH_FOR


@asynccontextmanager
async def queue(house: House, most: int | None = 10) -> AsyncIterator[QueueLimit]:
    async with open_api(SETTINGS, httpx2.MockTransport(house.told)) as api:
        yield QueueLimit(api.queue_depth, most=most, clock=house)


def holding(depth: object) -> House:
    return House(httpx2.Response(200, json={"queue_depth": depth}))


@pytest.mark.parametrize("depth", [0, 10])
async def test_a_queue_that_is_as_long_as_it_may_be_holds_nobody_up(depth: int) -> None:
    async with queue(holding(depth)) as watched:
        await watched.check()


async def test_beyond_that_calls_are_sent_back_with_a_time_to_wait() -> None:
    async with queue(holding(11)) as watched:
        with pytest.raises(TryAgain, match="11 jobs waiting or running, more than 10") as caught:
            await watched.check()
    assert caught.value.delay_s >= 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.ReadTimeout("x"),
        httpx2.ConnectError("x"),
        httpx2.Response(500),
        httpx2.Response(403),
        httpx2.Response(200),
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, json={"queue_depth": "many"}),
        httpx2.Response(200, json={}),
    ],
)
async def test_what_cannot_be_seen_is_no_reason_to_wait(answer: httpx2.Response | Exception) -> None:
    house = House(answer)
    async with queue(house) as watched:
        await watched.check()
        await watched.check()
    assert house.asked == 1


async def test_a_call_is_not_begun_while_the_queue_is_too_long_and_is_run_later(
    fake: FakeDuctile, tmp_path: Path
) -> None:
    release = threading.Event()
    fake.on("probe", "look", held(release))
    call = a_call()
    async with gateway(fake, tmp_path, queue_most=None) as others:
        running = [asyncio.create_task(others.run(a_call("look"))) for _ in range(3)]
        await until(lambda: len(fake.executions) == 3)
        (tmp_path / "ours").mkdir()
        async with gateway(fake, tmp_path / "ours", queue_most=2) as runner:
            with pytest.raises(TryAgain, match="3 jobs"):
                await runner.run(call)
            assert await runner.resume(call) == NeverStarted()
            release.set()
            await asyncio.gather(*running)
        async with gateway(fake, tmp_path / "ours", queue_most=2) as runner:
            assert outcome(await runner.run(call)).status == "ok"
