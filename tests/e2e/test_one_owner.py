"""A bus has one agent: a second is told so, one that takes over fences the first, and no run is lost or done twice."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2

from agent_service.workbench.dev import DevStack
from schemas import subjects
from tests.e2e.agents import another_agent, last_word
from tests.e2e.bodies import lines, recording, running, to_the_end, touch, wake
from tests.e2e.by_hand import Bench, bench, one_step
from tests.kit.cut_wire import Rule, Way, wire
from tests.kit.waiting import until

SHORT = {"lease_s": 3}


def agent_log(folder: Path) -> Path:
    return folder / "stack" / "logs" / "agent.log"


async def test_a_second_agent_with_another_store_is_told_who_owns_the_bus_and_takes_no_run_from_it(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=1)) as made,
        another_agent(made.config, store=tmp_path / "second") as second,
    ):
        runs = [await wake(made) for _ in range(6)]
        ended = [await to_the_end(made, run_id) for run_id in runs]
        code, told = await second.ended()
        facts = (f"process {made.agent.pid} on {socket.gethostname()}", str(tmp_path / "stack" / "agent"), "since 20")
    assert code == 78
    assert [
        fact for fact in (*facts, "renewed", "expires 10 s after", "`agentic serve --take-over`") if fact not in told
    ] == []
    assert [run["state"] for run in ended] == ["done"] * 6
    assert lines(tmp_path / "marks" / "lines") == 6


async def test_an_agent_of_the_same_store_takes_over_in_the_middle_of_a_run_which_goes_on_once(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        run_id = await wake(made)
        await until(lambda: lines(file) == 1)
        async with another_agent(made.config, "--take-over") as green:
            await green.ready()
            touch(go, 1)
            await until(lambda: lines(file) == 2)
            touch(go, 2)
            ended = await to_the_end(made, run_id)
            told = last_word(agent_log(tmp_path))
    assert (ended["state"], lines(file)) == ("done", 2)
    assert f"process {green.process.pid}" in told


async def test_an_agent_that_was_stopped_for_longer_than_its_lease_finds_itself_fenced(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file, steps=1), agent=SHORT) as made:
        first = [await wake(made) for _ in range(3)]
        await asyncio.gather(*(to_the_end(made, run_id) for run_id in first))
        stopped = made.agent.pid
        assert stopped
        os.kill(stopped, signal.SIGSTOP)
        async with another_agent(made.config, store=tmp_path / "second") as second:
            there = replace(made, url=await second.ready())
            runs = [await wake(there) for _ in range(3)]
            ended = [await to_the_end(there, run_id) for run_id in runs]
            os.kill(stopped, signal.SIGCONT)
            await until(lambda: made.agent.pid != stopped)
            told = last_word(agent_log(tmp_path))
            runs += [await wake(there)]
            ended += [await to_the_end(there, runs[-1])]
    assert str(tmp_path / "second") in told
    assert [run["state"] for run in ended] == ["done"] * 4
    assert lines(file) == 7


class Network:
    """Between an agent and its bus. While it is not `whole`, bytes wait and no connection ends."""

    def __init__(self) -> None:
        self.whole = asyncio.Event()
        self.whole.set()

    def rule(self) -> Rule:
        return self._pass

    async def _pass(self, _: Way, chunk: bytes) -> bytes:
        await self.whole.wait()
        return chunk


async def test_an_agent_that_was_cut_off_accepts_nothing_and_is_fenced_when_the_network_is_back(tmp_path: Path) -> None:
    file, network = tmp_path / "marks" / "lines", Network()
    async with (
        running(tmp_path / "stack", recording(file, steps=1), agent=SHORT) as made,
        wire(int(made.nats.url.rpartition(":")[2]), network.rule) as near,
        another_agent(made.config, "--take-over", store=tmp_path / "two", bus=made.nats.url_at(near)) as two,
    ):
        there = replace(made, url=await two.ready())
        before = await to_the_end(there, await wake(there))
        network.whole.clear()
        await until(partial(_is_refused, there), within_s=20)
        await until(partial(_is_taken, made), within_s=30)
        network.whole.set()
        code, told = await two.ended()
        after = await to_the_end(made, await wake(made))
    assert (before["state"], after["state"], code) == ("done", "done", 78)
    assert str(tmp_path / "stack" / "agent") in told


async def test_while_the_bus_is_away_for_longer_than_the_lease_nothing_new_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file, steps=1), agent=SHORT) as made:
        made.nats.kill()
        accepted = await wake(made, wake_id="while-the-lease-lasts")
        await until(partial(_is_refused, made))
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
            refused = await client.post("/v1/wake", json={"goal": "record", "wake_id": "later"})
            cancelled = await client.post(f"/v1/runs/{accepted}/cancel", json={})
        await made.nats.start()
        await until(partial(_is_taken, made))
        ended = await to_the_end(made, await wake(made, wake_id="later"))
    assert "the lease of the agent has lapsed, and the bus cannot be asked who has it" in refused.text
    assert int(refused.headers["Retry-After"]) >= 1
    assert cancelled.status_code == 202
    assert ended["state"] == "done"


async def _is_refused(made: DevStack) -> bool:
    return await _asked(made) == 503


async def _is_taken(made: DevStack) -> bool:
    return await _asked(made) == 202


async def _asked(made: DevStack) -> int:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=10) as client:
        try:
            return (await client.post("/v1/wake", json={"goal": "record"})).status_code
        except httpx2.TransportError:
            return 0


async def test_an_agent_that_comes_back_hears_what_another_was_told_in_its_stead(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("put"), mortal=True, lease_s=1) as made:
        run_ids = [(await made.wake(f"w{number}")).json()["run_id"] for number in (1, 2)]
        await until(lambda: {request["run_id"] for request in made.requests} == set(run_ids), within_s=20)
        requests = {request["run_id"]: request for request in made.requests}
        async with another_agent(tmp_path / "agentic.yaml", "--take-over", store=tmp_path / "second") as second:
            await second.ready()
            for request in requests.values():
                await made.answer(request)
            await until(lambda: _all_acknowledged(made), within_s=20)
        await until(made.is_ready, within_s=20)
        ended = [await made.ended(run_id) for run_id in run_ids]
    assert [run["state"] for run in ended] == ["done"] * 2
    assert {request["attempt"] for request in made.requests} == {1}


async def _all_acknowledged(made: Bench) -> bool:
    info = await made.link.jetstream.consumer_info(subjects.STREAM_RESULTS, subjects.DURABLE_LOOP)
    return (info.num_pending, info.num_ack_pending) == (0, 0)
