"""Answers that no Ductile should give, or that a proxy gives: each costs a call at most, and never the gateway."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import ToolCall, ToolOutcome, Unknown, Verdict, Way
from ductile_gateway.clock import SystemClock
from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import open_api
from ductile_gateway.ductile.discovery import look_at
from ductile_gateway.ductile.events import SHORTEST_PAUSE_S, DuctileEvents
from ductile_gateway.ductile.late import LateJobs
from ductile_gateway.ductile.runner import DuctileRunner, open_runner
from ductile_gateway.ductile.settings import DuctileSettings
from ductile_gateway.ductile.watch import Job
from schemas.gateway_status import Finding
from tests.ductile.fake import FakeDuctile
from tests.ductile.runner_house import NO_TOOLS, PATIENCE_S, QUICK, a_call, gateway, outcome, settings_for
from tests.ductile.under_test import DuctileUnderTest
from tests.ductile.wires import LossyWire
from tests.gateway.stores import KeptReceipts, opened
from tests.kit.waiting import until

SETTINGS = DuctileSettings.model_validate({"url": "http://localhost:1", "token": "t", "events": False})
HEALTH: dict[str, Any] = {"version": "dev", "queue_depth": 0, "plugins_loaded": 3}


class Instead(httpx2.AsyncBaseTransport):
    """Answers by path; 404 to anything else."""

    def __init__(self, answers: dict[str, Callable[[], httpx2.Response]]) -> None:
        self._answers = answers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._answers.get(request.url.path)
        return answer() if answer else httpx2.Response(404, json={"error": "not found"})


@asynccontextmanager
async def _runner(transport: httpx2.AsyncBaseTransport, folder: Path) -> AsyncIterator[DuctileRunner]:
    clock = SystemClock()
    async with (
        open_api(SETTINGS, transport) as api,
        opened(folder, KeptReceipts) as kept,
        open_runner(api, NO_TOOLS, SETTINGS, receipts=kept, overdue=kept.overdue, clock=clock, pace=QUICK) as runner,
    ):
        yield runner


async def look(**answers: Callable[[], httpx2.Response]) -> tuple[Finding, Finding]:
    known = {"/healthz": lambda: httpx2.Response(200, json=HEALTH)}
    paths = {f"/{name.replace('__', '/')}": answer for name, answer in answers.items()}
    async with open_api(SETTINGS, Instead(known | paths)) as api:
        return await look_at(api, SETTINGS, writes=False)


@pytest.mark.parametrize("version", ["1\u0000", "\u001b[31mred", "a\nb", 7, None, ["x"], "x" * 10_000])
async def test_whatever_a_ductile_calls_itself_can_be_shown(version: Any) -> None:
    body = json.dumps(HEALTH | {"version": version}).encode()
    found, _ = await look(healthz=lambda: httpx2.Response(200, content=body))
    assert found.mark == "ok"
    assert found.text.isprintable()
    assert len(found.text) < 500


async def test_a_proxy_that_does_not_let_the_configuration_through_is_no_sign_of_a_token_that_opens_it() -> None:
    _, token = await look(config__view=lambda: httpx2.Response(404))
    assert token.mark == "ok"


@pytest.mark.parametrize("status", [302, 408, 429, 502])
async def test_what_is_put_off_says_nothing_of_the_token(status: int) -> None:
    with pytest.raises(Away, match=str(status)):
        await look(config__view=lambda: httpx2.Response(status))


@pytest.mark.attack(51)
@pytest.mark.parametrize(
    "job",
    [
        {"status": {"code": 1}},
        {"status": "succeeded", "result": {"status": ["ok"], "result": "x"}},
        {"status": "failed", "result": 7},
    ],
)
async def test_a_job_that_cannot_be_read_is_an_error_of_its_call(tmp_path: Path, job: dict[str, Any]) -> None:
    class Odd(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                return httpx2.Response(202, json={"job_id": "j-1"})
            if request.url.path == "/job/j-1":
                return httpx2.Response(200, json=job)
            return httpx2.Response(200, json={"logs": [], "queue_depth": 0})

    async with _runner(Odd(), tmp_path) as runner:
        assert outcome(await runner.run(a_call(within_s=2))).status == "error"


async def test_a_stranger_that_knows_no_job_is_waited_out(tmp_path: Path) -> None:
    strangers = [httpx2.Response(404, html="<p>Nothing here</p>"), httpx2.Response(404, json={"error": "no route"})]
    ended = {"status": "succeeded", "plugin": "probe", "command": "note", "result": {"status": "ok", "result": "noted"}}

    class Odd(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if request.method == "POST":
                return httpx2.Response(202, json={"job_id": "j-1"})
            if request.url.path == "/job/j-1":
                return strangers.pop() if strangers else httpx2.Response(200, json=ended)
            return httpx2.Response(200, json={"logs": [], "jobs": [], "queue_depth": 0})

    async with _runner(Odd(), tmp_path) as runner:
        assert outcome(await runner.run(a_call())).text == "noted"
    assert not strangers


async def test_a_stream_of_events_that_ends_at_once_is_opened_ever_more_seldom() -> None:
    opened_at: list[float] = []

    class Cutting(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            assert request.url.path == "/events"
            opened_at.append(asyncio.get_running_loop().time())
            return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=b": hello\n\n")

    async with open_api(SETTINGS, Cutting()) as api:
        following = asyncio.create_task(DuctileEvents(api).follow())
        await until(lambda: len(opened_at) == 4)
        following.cancel()
    assert opened_at[3] - opened_at[2] > 2 * SHORTEST_PAUSE_S


async def test_a_late_result_that_cannot_be_told_is_given_up_and_the_others_are_told(tmp_path: Path) -> None:
    told: list[str] = []

    class Ended:
        async def look(self, job: Job) -> ToolOutcome:
            return ToolOutcome("ok", text=job.job_id)

    async def take(key: str, verdict: Verdict) -> bool:
        del verdict
        if key == "poison":
            raise ValueError("no number has so many digits")
        told.append(key)
        return True

    async with opened(tmp_path, KeptReceipts) as receipts:
        for number, key in enumerate(("poison", "fine")):
            at = datetime.now(UTC) + timedelta(seconds=number)
            await receipts.overdue.add(key, Job(key, pipeline=False), at)
        late = LateJobs(Ended(), receipts.overdue, every_s=0.01, clock=SystemClock())
        following = asyncio.create_task(late.follow(take))
        await until(lambda: not late.waiting())
        assert not following.done()
        following.cancel()
    assert told == ["fine"]


async def begun(folder: Path, call: ToolCall, way: Way, *, job_id: str = "") -> None:
    """What a gateway that was killed has left of the call."""
    async with opened(folder, KeptReceipts) as receipts:
        await receipts.begin(call.key, datetime.now(UTC), way)
        if job_id:
            await receipts.accepted(call.key, job_id)


async def test_a_look_that_is_refused_is_no_absence(fake: FakeDuctile, tmp_path: Path) -> None:
    """The token was taken back in the meantime: nobody is waited for who is there and does not tell."""
    call = a_call(within_s=PATIENCE_S)
    await begun(tmp_path, call, "plugin")
    async with gateway(fake, tmp_path, token="another") as runner, asyncio.timeout(PATIENCE_S / 2):  # noqa: S106 - a wrong one
        assert isinstance(await runner.resume(call), Unknown)


async def test_a_call_is_judged_as_the_pipeline_that_it_was_when_its_tool_is_none_any_more(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    call = a_call("handle", plugin="probe-asked")
    async with open_api(settings_for(ductile)) as api:
        job_id = await api.start_pipeline("probe-asked", {"do": "emit", "emitted": {"text": "of the second step"}})
    await begun(tmp_path, call, "pipeline", job_id=job_id)
    async with gateway(ductile, tmp_path) as runner:
        found = outcome(await runner.resume(call))
    assert "of the second step" in str(found.output)


async def test_an_event_that_cannot_be_made_as_it_was_is_not_sent_again(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    call, wire = replace(a_call("handle", plugin="keep-note"), complete=False), LossyWire(ductile)
    await begun(tmp_path, call, "event")
    peer = ductile.peer
    relay = {"peer": peer.name, "key_id": peer.key_id, "secret": peer.secret, "routes": {"keep-note": "probe.asked"}}
    async with gateway(ductile, tmp_path, relay=relay, wire=wire) as runner:
        assert isinstance(await runner.resume(call), Unknown)
    assert not wire.sent
