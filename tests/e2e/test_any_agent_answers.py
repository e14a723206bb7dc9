"""Several real agents of one store on a cluster: whichever is asked answers for any run, follows any run and shows its
files; and together they keep one limit."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from schemas import subjects
from tests.e2e.bodies import PROBES
from tests.e2e.chaos_load import script, write_tool
from tests.http.wire import Event, events
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, fleet
from tests.kit.waiting import until

WITHIN_S = 90.0


@asynccontextmanager
async def agents(
    cluster: Cluster, folder: Path, many: int, *, wait_s: float = 0.0, **settings: Any
) -> AsyncIterator[Fleet]:
    """So many agents, whose runs take five steps with decisions of `wait_s`, and a gateway."""
    calls = write_tool(folder / "plugins", folder / "calls")
    rules = folder / "script.json"
    rules.write_text(json.dumps(script(wait_s)))
    plugins = (folder / "plugins", PROBES)
    options = FleetOptions(
        folder=folder / "fleet",
        agents=many,
        gateways=1,
        store="jetstream",
        script=rules,
        plugins=plugins,
        written=(calls, folder / "marks"),
        agent=settings,
    )
    async with fleet(cluster, options) as made:
        yield made


@asynccontextmanager
async def client_of(member: Member) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=member.url, trust_env=False, timeout=20) as client:
        yield client


async def get(member: Member, path: str) -> Any:
    async with client_of(member) as client:
        answer = await client.get(path)
        assert answer.status_code == 200, (member.name, path, answer.text)
        return answer.json()


async def woken(member: Member, many: int = 1) -> list[str]:
    """Runs that this agent has accepted."""
    async with client_of(member) as client:
        answers = [await client.post("/v1/wake", json={"goal": f"run {number}"}) for number in range(many)]
    return [answer.json()["run_id"] for answer in answers]


async def followed(member: Member, path: str, *, after: int | None = None, most: int = 10_000) -> list[Event]:
    """The events of a stream, until it ends or `most` have come."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    told: list[Event] = []
    async with (
        asyncio.timeout(WITHIN_S),
        client_of(member) as client,
        client.stream("GET", path, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        stream = events(answer)
        while len(told) < most and (event := await anext(stream, None)):
            told.append(event)
        await stream.aclose()  # type: ignore[attr-defined] # an async generator
    return told


async def test_what_one_agent_has_accepted_any_other_shows_at_once(cluster: Cluster, tmp_path: Path) -> None:
    async with agents(cluster, tmp_path, 2) as made:
        for asked, other in (made.agents, made.agents[::-1]) * 10:
            (run_id,) = await woken(asked)
            listed = await get(other, "/v1/runs?limit=1")
            assert [run["run_id"] for run in listed["runs"]] == [run_id]
            assert (await get(other, f"/v1/runs/{run_id}/entries"))["entries"][0]["kind"] == "WakeAccepted"
            assert (await get(other, f"/v1/runs/{run_id}/timeline"))["items"]


async def wake_at(member: Member, wake_id: str) -> tuple[int, str, float]:
    """How it was answered, for which run, or why not, and after how many seconds."""
    began = time.monotonic()
    async with client_of(member) as client:
        answer = await client.post("/v1/wake", json={"goal": "the same", "wake_id": wake_id})
    told = answer.json()
    return answer.status_code, str(told.get("run_id") or told["error"]["message"]), time.monotonic() - began


async def test_without_a_leader_no_agent_is_ready_and_a_wake_is_refused_at_once_until_there_is_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with agents(cluster, tmp_path, 1) as made:
        (agent,) = made.agents

        async def says_so() -> bool:
            async with client_of(agent) as client:
                ready = (await client.get("/readyz")).json()
            return not ready["ready"] and subjects.STREAM_RUNS in ready["checks"]["room"]

        known = await wake_at(agent, "known")
        for node in cluster.nodes[1:]:
            node.kill()
        status, why, took = await wake_at(agent, "early")
        assert (status, "no server leads AGENTIC" in why, took < 12.0) == (503, True, True), (why, took)
        await until(says_so, within_s=20)
        status, _, took = await wake_at(agent, "late")
        assert (status, took < 4.0) == (503, True), took
        assert (await wake_at(agent, "known"))[:2] == known[:2], "what is known already is answered"
        await cluster.heal()
        await agent.ready()
        assert (await wake_at(agent, "early"))[0] == 202


async def test_a_reader_whose_agent_dies_goes_on_at_another_without_a_gap(cluster: Cluster, tmp_path: Path) -> None:
    async with agents(cluster, tmp_path, 2, wait_s=0.5) as made:
        first, second = made.agents
        (run_id,) = await woken(first)
        path = f"/v1/runs/{run_id}/events"
        told = await followed(first, path, most=4)
        first.kill()
        told += await followed(second, path, after=told[-1].id)
        assert [event.id for event in told] == list(range(1, len(told) + 1))
        assert told[-1].data["status"] == "done"
