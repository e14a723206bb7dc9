"""The whole circle with a real Ductile, the sample configuration and the settings of the guide.

Ductile wakes the agent, the agent calls a tool in Ductile, and Ductile hears how the run ended and keeps the outcome.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_service.dev import DevOptions, stack
from tests.ductile.sample_house import SampleHouse, eventually, free_port, guide_settings, in_place
from tests.e2e.bodies import FRAME

PLAN = {"action": {"tool": "echo", "command": "handle", "arguments": {"message": "hello"}}}
MET = [{"item": item, "evidence": "step:1"} for item in ("d1", "d2", "d3")]
SCRIPT = {
    "name": "circle",
    "rules": [
        FRAME,
        {"phase": "plan", "plan": PLAN},
        {"phase": "reflect", "reflect": {"verdict": "done", "summary": "It was said.", "met": MET}},
    ],
}

pytestmark = [
    pytest.mark.ductile,
    pytest.mark.skipif(
        "DUCTILE_BIN" not in os.environ, reason="no Ductile: bring a Ductile binary and set DUCTILE_BIN to its path"
    ),
]


def options(house: SampleHouse, *, port: int, ingress: int, folder: Path) -> DevOptions:
    """Both services in `folder`, the gateway with the settings of the guide but for its addresses."""
    gateway = guide_settings()["gateway"]
    gateway["ductile"]["url"] = gateway["outbound"]["relay"]["url"] = house.url
    gateway["ingress"]["port"] = ingress
    folder.mkdir()
    (folder / "script.yaml").write_text(yaml.safe_dump(SCRIPT))
    return DevOptions(
        folder=folder, http_port=port, script=folder / "script.yaml", plugins=(), sync_interval="1s", gateway=gateway
    )


def kept(house: SampleHouse, goal: str) -> bool:
    return any(file.read_text().startswith(f"# {goal}") for file in house.outcomes.iterdir())


async def test_a_schedule_and_a_relayed_event_each_end_as_an_outcome_that_ductile_keeps(tmp_path: Path) -> None:
    port, ingress = free_port(), free_port()
    house = in_place(tmp_path / "house", agent=f"http://127.0.0.1:{port}", gateway=f"http://127.0.0.1:{ingress}")

    def the_circle() -> dict[str, list[dict[str, Any]]]:
        eventually(lambda: kept(house, "Fetch https://example.org/"), lambda: str(house.jobs("agentic-wake")))
        payload = {"url": "https://example.org/b", "glance_id": "g-1"}
        assert house.ask("POST", "/pipeline/start-glance", json={"payload": payload}).status_code == 202
        eventually(lambda: kept(house, "Say in one sentence"), lambda: str(house.jobs("file_handler")))
        return {plugin: house.jobs(plugin) for plugin in ("agentic-wake", "echo", "file_handler")}

    with house.running():
        async with stack(options(house, port=port, ingress=ingress, folder=tmp_path / "stack")):
            jobs = await asyncio.to_thread(the_circle)
    assert {plugin: len(found) for plugin, found in jobs.items()} == {"agentic-wake": 1, "echo": 2, "file_handler": 2}
