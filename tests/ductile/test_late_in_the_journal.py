"""A write is given up at its deadline and does its work all the same: what came of it is in the journal of its run."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import httpx2
import yaml

from agent_service.workbench.dev import DevOptions, DevStack, stack
from tests.cli.calling import agentic
from tests.ductile.fake import FakeDuctile
from tests.kit.stack import FRAME, to_the_end, view, wake
from tests.kit.waiting import until

HOLD = {"tool": "probe", "command": "note", "arguments": {"do": "hold", "until": "$file"}}
MET = [{"item": item, "evidence": "step:1"} for item in ("d1", "d2", "d3")]
SCRIPT = {
    "name": "held",
    "rules": [
        FRAME,
        {"phase": "plan", "when": {"goal": r"hold note until (?P<file>\S+)"}, "plan": {"action": HOLD}},
        {"phase": "reflect", "reflect": {"verdict": "done", "summary": "It is done.", "met": MET}},
    ],
}


def options(fake: FakeDuctile, folder: Path) -> DevOptions:
    """The probe's `note` writes, and has two seconds."""
    (folder / "script.yaml").write_text(yaml.safe_dump(SCRIPT))
    ductile = {"url": fake.url, "token": fake.token, "poll_most_s": 0.5}
    tools = {"probe": {"commands": ["note"], "timeout_s": 2, "output": "trusted"}}
    gateway = {"runner": "ductile", "ductile": ductile, "tools": tools}
    return DevOptions(
        folder=folder / "stack", script=folder / "script.yaml", plugins=(), sync_interval="1s", gateway=gateway
    )


async def results(made: DevStack, run_id: str) -> list[dict[str, Any]]:
    """What the journal has of the tool's answers."""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as http:
        entries = (await http.get(f"/v1/runs/{run_id}/entries")).json()["entries"]
    return [entry["event"]["result"] for entry in entries if entry["kind"] == "ToolReturned"]


async def test_a_person_who_looks_at_a_write_in_doubt_finds_what_came_of_it(fake: FakeDuctile, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with stack(options(fake, tmp_path)) as made:
        run_id = await wake(made, f"hold note until {gate}")
        assert (await to_the_end(made, run_id))["state"] == "escalated"
        gate.touch()

        async def told() -> bool:
            return len(await results(made, run_id)) == 2

        await until(told, within_s=30)
        in_doubt, late = await results(made, run_id)
        ended = await view(made, run_id)
        assert ended["state"] == "escalated"
        job_id = ended["steps"][0]["execution"]["job_id"]
        shown = await asyncio.to_thread(agentic, "show", run_id, "--url", made.url)
        heard = await asyncio.to_thread(agentic, "signal", run_id, "resume", "--url", made.url)
        name, asked, *rest = shlex.split((await view(made, run_id))["remedy"]["command"])
        went_on = await asyncio.to_thread(agentic, asked, *rest, "--json", "--url", made.url)
        settled = await to_the_end(made, run_id)
    assert (heard.code, f"agentic answer --look {run_id}" in heard.err) == (6, True), heard
    assert "find out whether step 1 (probe note) was done" in " ".join(shown.out.replace("│", "").split())
    assert (name, asked, went_on.document["status"]) == ("agentic", "answer", "running"), went_on
    assert (settled["reopened"], settled["steps"][0]["status"]) == (1, "ok"), "what came late counts"
    assert (in_doubt["error"]["class"], late["status"]) == ("in_doubt", "ok")
    assert (in_doubt["error"]["job_id"], f"job {job_id}" in shown.out) == (job_id, True), shown
    assert f"(in_doubt, job {job_id})" in ended["reason"]
    assert "probe came after the run's end, which it does not change" in " ".join(shown.out.split()), shown
    calls = [execution.payload["agentic_call_id"] for execution in fake.executions]
    assert calls.count(f"{run_id}:1:probe:1") == 1, "it is not repeated"
