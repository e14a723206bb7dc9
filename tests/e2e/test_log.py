"""The agent's log as it is: one line for each entry of a journal, and next to nothing besides."""

import json
import os
from pathlib import Path

import httpx2

from agent_service.identity import trace_id
from groundwork.service.user_name import user_name
from tests.e2e.bodies import recording, running, to_the_end, wake

OF_THE_SERVICE = {"ready", "the bus is informed"}


async def test_every_entry_of_a_run_is_one_line_of_json_and_nothing_else_is_said_of_it(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines", steps=2)) as made:
        run_id = await wake(made, wake_id="order-9")
        await to_the_end(made, run_id)
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
            journal = (await client.get(f"/v1/runs/{run_id}/entries")).json()["entries"]
        lines = [json.loads(line) for line in made.agent.log_file.read_text().splitlines()]
    of_the_run = [line for line in lines if line.get("run_id") == run_id]
    assert [(line["entry"], line["event"]) for line in of_the_run] == [(one["seq"], one["kind"]) for one in journal]
    assert {line["msg"] for line in lines if line not in of_the_run} <= OF_THE_SERVICE
    assert {(line["wake_id"], line["trace_id"], line["level"]) for line in of_the_run} == {
        ("order-9", trace_id(run_id), "INFO")
    }
    assert of_the_run[0]["by"] == f"os user {user_name(os.getuid())}"
    assert of_the_run[-1]["state_transition"] == "for_model->done"
    answered = [line for line in of_the_run if line["event"] == "ToolReturned"]
    assert [(line["step"], line["tool"], line["attempt"]) for line in answered] == [(1, "probe", 1), (2, "probe", 1)]
    assert all(line["latency_ms"] > 0 for line in answered)
