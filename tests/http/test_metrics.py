"""GET /metrics: how wakes were answered, and how long that took."""

import httpx2

from tests.http.house import House

GOAL = {"goal": "Find the answer."}


async def wakes(client: httpx2.AsyncClient) -> dict[str, int]:
    """How often, by the labels of the outcome."""
    lines = (await client.get("/metrics")).text.splitlines()
    name = "agentic_wake_duration_seconds_count{"
    pairs = (line.removeprefix(name).rpartition("} ") for line in lines if line.startswith(name))
    return {labels: int(float(value)) for labels, _, value in pairs}


def outcome(name: str, error: str = "") -> str:
    return f'agentic_transport="http",agentic_wake_outcome="{name}",error_type="{error}"'


async def test_a_wake_that_is_repeated_is_a_duplicate(client: httpx2.AsyncClient) -> None:
    for _ in range(3):
        await client.post("/v1/wake", json={"wake_id": "w-1", **GOAL})
    assert await wakes(client) == {outcome("accepted"): 1, outcome("duplicate"): 2}
    assert 'agentic_dedupe_hits_total{agentic_dedupe_kind="wake"} 2.0' in (await client.get("/metrics")).text


async def test_a_wake_that_has_to_be_asked_otherwise_is_rejected(client: httpx2.AsyncClient, house: House) -> None:
    await client.post("/v1/wake", json={"wake_id": "w-1", **GOAL})
    await client.post("/v1/wake", json={"wake_id": "w-1", "goal": "Find another."})
    await client.post("/v1/wake", json={"constraints": {"max_steps": 1_000}, **GOAL})
    house.picky.refused["https://10.0.0.1/hook"] = "it is in a private network"
    await client.post("/v1/wake", json={"callback": "https://10.0.0.1/hook", **GOAL})
    assert await wakes(client) == {
        outcome("accepted"): 1,
        outcome("rejected", "wake_id_taken"): 1,
        outcome("rejected", "not_granted"): 1,
        outcome("rejected", "callback_refused"): 1,
    }
