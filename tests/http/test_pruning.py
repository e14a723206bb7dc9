"""Runs that are kept no longer: asked for by an operator, and what everybody is told of them from then on."""

from typing import Any

import httpx2
import pytest

from agent_service.archive.retention import Over
from agent_service.core.waiting import FINAL
from tests.http.house import House
from tests.kit.runs import accepted, run_id, started, whole_run

RUN, OPEN = run_id(8), run_id(9)
RULE, OF_CANCELLED = "agent.keep_runs.done_days: 1", "agent.keep_runs.cancelled_days: 1"
DAY_S = 86400


@pytest.fixture(autouse=True)
async def two_runs(house: House) -> None:
    """One that is done for two days, with a folder, and one that goes on."""
    done, running = whole_run(8), accepted(9)
    await house.play(done)
    await settled(house, RUN)
    await house.play([running, started(running)])
    await settled(house, OPEN)
    assert not house.workspace.write([(RUN, {"plan.md": b"# Plan\n"})])
    house.clock.advance(2 * DAY_S)


async def settled(house: House, of_run: str) -> None:
    """All is done that the run asked for."""
    house.store.told(of_run, house.store.version(of_run))
    house.store._write_told()
    await house.store._database.write(lambda _: None)


async def prune(client: httpx2.AsyncClient, **asked: bool) -> dict[str, Any]:
    answer = await client.post("/v1/prune", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_run_whose_time_is_over_goes_with_its_folder_and_the_others_stay(
    client: httpx2.AsyncClient, house: House
) -> None:
    assert (await prune(client))["runs"] == {RULE: 1}
    assert (await prune(client))["runs"] == {}
    assert house.workspace.files(RUN) is None
    assert [run["run_id"] for run in (await client.get("/v1/runs")).json()["runs"]] == [OPEN]
    assert (await client.get(f"/v1/runs/{OPEN}")).json()["state"] == "running"


READ = ("", "/entries", "/events", "/workspace", "/workspace/plan.md", "/timeline", "/steps/1", "/calls/1", "/why")
SAID: dict[str, Any] = {
    "/cancel": {},
    "/dismiss": {},
    "/signals": {"signal_id": "s1", "kind": "message", "message": "hello"},
    "/answers": {"answer": "yes"},
    "/approvals": {"decision": "approve", "arguments_hash": "0" * 32},
}


@pytest.mark.parametrize("path", [*READ, *SAID])
async def test_every_path_of_a_run_that_is_gone_says_so_with_the_rule_and_when(
    client: httpx2.AsyncClient, path: str
) -> None:
    await prune(client)
    method = "POST" if path in SAID else "GET"
    answer = await client.request(method, f"/v1/runs/{RUN}{path}", json=SAID.get(path))
    told = answer.json()
    assert (answer.status_code, told["code"], told["run_id"]) == (410, "gone", RUN), answer.text
    assert (told["gone"]["rule"], told["gone"]["status"], told["gone"]["wake_id"]) == (RULE, "done", "wake-8")
    assert RULE in told["detail"]
    assert told["gone"]["gone_at"][:19] in told["detail"].replace("Z", "")


async def test_an_artifact_that_is_kept_no_longer_says_so_and_the_rest_of_its_run_is_there(
    client: httpx2.AsyncClient, house: House
) -> None:
    (run,) = await house.store.forgetting.ended(
        Over(statuses=FINAL, before=house.clock.now(), escalated_before=house.clock.now()), None, 1
    )
    artifact = f"/v1/runs/{RUN}/workspace/artifacts/report.md"
    assert (await client.get(artifact)).json()["code"] == "no_such_file"
    await house.store.forgetting.forget_artifacts([run], "agent.keep_runs.artifacts_days: 1", house.clock.now())
    told = (await client.get(artifact)).json()
    assert (told["status"], told["code"], told["run_id"]) == (410, "artifacts_gone", RUN)
    assert "agent.keep_runs.artifacts_days: 1" in told["detail"]
    assert (await client.get(f"/v1/runs/{RUN}/workspace/plan.md")).status_code == 200
    assert (await client.get(f"/v1/runs/{RUN}/workspace/nothing.md")).json()["code"] == "no_such_file"


async def test_a_wake_of_a_run_that_is_gone_is_answered_with_its_id_however_long_is_waited(
    client: httpx2.AsyncClient, house: House
) -> None:
    asked = {"wake_id": "again", "goal": "look"}
    first = (await client.post("/v1/wake", json=asked)).json()["run_id"]
    await client.post(f"/v1/runs/{first}/cancel", json={})
    await settled(house, first)
    house.clock.advance(2 * DAY_S)
    assert OF_CANCELLED in (await prune(client))["runs"]
    assert (await client.post("/v1/wake?wait=5", json=asked)).json()["run_id"] == first
    assert (await client.post("/v1/wake", json={**asked, "goal": "another"})).status_code == 409
